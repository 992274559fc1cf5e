// One panel with Grafana's own components. Which component draws a kind of panel is Grafana's choice as well.
import { dateTime, VizOrientation } from '@grafana/data';
import { BarGauge, BigValue, Table, TimeSeries, useTheme2 } from '@grafana/ui';

import { asTable, ofNow, overTime } from './frames';

function Lines({ panel, series, range, width, height }) {
  const theme = useTheme2();
  const timeRange = { from: dateTime(range.from * 1000), to: dateTime(range.to * 1000), raw: { from: 'now-5m', to: 'now' } };
  return (
    <TimeSeries
      frames={overTime(panel, series, theme)}
      timeRange={timeRange}
      timeZone="utc"
      width={width}
      height={height}
      legend={{ ...panel.options.legend, showLegend: true }}
      options={{}}
    />
  );
}

function Numbers({ panel, series, width, height }) {
  const theme = useTheme2();
  return ofNow(panel, series, theme).map(({ display }, index) => (
    <BigValue
      key={index}
      theme={theme}
      value={{ ...display, title: '' }}
      colorMode={panel.options.colorMode}
      graphMode="none"
      justifyMode="auto"
      textMode="value"
      width={width}
      height={height}
    />
  ));
}

function Bars({ panel, series, width, height }) {
  const theme = useTheme2();
  const bars = ofNow(panel, series, theme);
  const each = Math.min(64, Math.floor(height / bars.length) - 6);
  const most = Math.max(...bars.map((bar) => bar.display.numeric));
  return bars.map(({ field, processor, display }, index) => (
    <div key={index} style={{ marginBottom: 6 }}>
      <BarGauge
        theme={theme}
        value={display}
        field={{ ...field, min: 0, max: field.max ?? most }}
        display={processor}
        orientation={VizOrientation.Horizontal}
        displayMode={panel.options.displayMode}
        valueDisplayMode={panel.options.valueMode}
        showUnfilled
        width={width}
        height={each}
      />
    </div>
  ));
}

function Rows({ panel, series, width, height }) {
  return <Table data={asTable(panel, series, useTheme2())} width={width} height={height} ariaLabel={panel.title} />;
}

export const KINDS = { timeseries: Lines, stat: Numbers, bargauge: Bars, table: Rows };
