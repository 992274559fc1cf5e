// Draws a dashboard from a Prometheus, on Grafana's grid, and reports what each panel shows.
import { createTheme, ThemeContext } from '@grafana/data';
import { GlobalStyles, PanelChrome } from '@grafana/ui';
import { Component, useEffect, useState } from 'react';
import { createRoot } from 'react-dom/client';

import { KINDS } from './panels';
import { seriesOf } from './prometheus';

const CELL = 38;
const GAP = 8;
const WIDTH = 1400;
const parameters = new URLSearchParams(location.search);
const now = Math.floor(Date.now() / 1000);
const range = { from: now - Number(parameters.get('seconds')), to: now, step: Number(parameters.get('step')) };
const theme = createTheme({ colors: { mode: 'light' } });

class Guard extends Component {
  state = { error: null };

  static getDerivedStateFromError(error) {
    return { error };
  }

  componentDidCatch(error) {
    this.props.report.error = String(error);
  }

  render() {
    return this.state.error ? <pre>{String(this.state.error)}</pre> : this.props.children;
  }
}

function place({ x, y, w, h }) {
  const column = (WIDTH - GAP) / 24;
  return { left: GAP + x * column, top: y * CELL + GAP, width: w * column - GAP, height: h * CELL - GAP };
}

function Panel({ panel, series, report }) {
  const { width, height, ...corner } = place(panel.gridPos);
  const Kind = KINDS[panel.type];
  return (
    <div style={{ position: 'absolute', ...corner, width, height }} data-panel={panel.id}>
      <PanelChrome title={panel.title} width={width} height={height}>
        {(inner, high) => (
          <Guard report={report}>
            {series.length ? <Kind panel={panel} series={series} range={range} width={inner} height={high} /> : 'No data'}
          </Guard>
        )}
      </PanelChrome>
    </div>
  );
}

function Dashboard({ board, loaded, reports }) {
  useEffect(() => {
    // Lines are painted after the layout; what they look like is asked for when they are.
    const timer = setTimeout(() => {
      for (const report of reports) {
        const element = document.querySelector(`[data-panel="${report.id}"]`);
        report.drawn = report.type === 'timeseries' ? painted(element) : element.innerText.trim().length > report.title.length;
      }
      fetch('/report', { method: 'POST', body: JSON.stringify({ dashboard: board.uid, panels: reports }) });
    }, 1500);
    return () => clearTimeout(timer);
  }, [board, reports]);
  return (
    <div style={{ position: 'relative', width: WIDTH, background: theme.colors.background.canvas, minHeight: '100vh' }}>
      {board.panels
        .filter((panel) => panel.type === 'row')
        .map((row) => (
          <h4 key={row.id} style={{ position: 'absolute', left: GAP, top: row.gridPos.y * CELL + GAP, margin: 0, lineHeight: '30px' }}>
            {row.title}
          </h4>
        ))}
      {loaded.map(({ panel, series }, index) => (
        <Panel key={panel.id} panel={panel} series={series} report={reports[index]} />
      ))}
    </div>
  );
}

// Whether a canvas has more than one colour.
function painted(element) {
  const canvas = element.querySelector('canvas');
  if (!canvas) {
    return false;
  }
  const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  const pixels = new Uint32Array(data.buffer);
  return pixels.some((pixel) => pixel !== pixels[0]);
}

function Page() {
  const [state, setState] = useState(null);
  useEffect(() => {
    (async () => {
      const board = await (await fetch(`/dashboards/${parameters.get('dashboard')}`)).json();
      const panels = board.panels.filter((panel) => panel.type !== 'row');
      const reports = panels.map(({ id, title, type }) => ({ id, title, type, series: 0, error: null, drawn: false }));
      const loaded = await Promise.all(
        panels.map(async (panel, index) => {
          let series = [];
          try {
            series = await seriesOf(parameters.get('prometheus'), panel, range);
          } catch (error) {
            reports[index].error = String(error);
          }
          reports[index].series = series.length;
          return { panel, series };
        })
      );
      setState({ board, loaded, reports });
    })();
  }, []);
  return (
    <ThemeContext.Provider value={theme}>
      <GlobalStyles />
      {state && <Dashboard {...state} />}
    </ThemeContext.Provider>
  );
}

createRoot(document.getElementById('root')).render(<Page />);
