// Series as Grafana's data frames, with the options of the panel on each field.
import { FieldType, getDisplayProcessor, toDataFrame } from '@grafana/data';

function configured(panel, name, theme, type = FieldType.number) {
  const config = structuredClone(panel.fieldConfig.defaults);
  config.custom ??= {};
  config.displayName = name;
  for (const override of panel.fieldConfig.overrides) {
    if (override.matcher.options !== name) {
      continue;
    }
    for (const { id, value } of override.properties) {
      if (id.startsWith('custom.')) {
        config.custom[id.slice('custom.'.length)] = value;
      } else {
        config[id] = value;
      }
    }
  }
  const field = { name, type, config, state: {} };
  field.display = getDisplayProcessor({ field, theme });
  return field;
}

// One frame a series, on the times that all of them share.
export function overTime(panel, series, theme) {
  return series.map((one, index) => {
    const field = configured(panel, one.legend, theme);
    return {
      refId: one.refId,
      length: one.points.length,
      fields: [
        { name: 'time', type: FieldType.time, config: {}, values: one.points.map(([time]) => time * 1000) },
        { ...field, values: one.points.map(([, value]) => value), labels: {}, state: { seriesIndex: index, displayName: one.legend } },
      ],
    };
  });
}

// What a single value is shown as: text, colour, percentage.
export function ofNow(panel, series, theme) {
  return series.map((one) => {
    const field = configured(panel, one.legend || panel.title, theme);
    const display = field.display(one.points.at(-1)[1]);
    return { field: field.config, processor: field.display, display: { ...display, title: one.legend } };
  });
}

// Rows by labels, a column for each query: Grafana's transformations `merge` and `organize`.
export function asTable(panel, series, theme) {
  const rows = new Map();
  const labels = new Set();
  const sort = panel.options.sortBy[0].displayName;
  for (const one of series) {
    const key = JSON.stringify(Object.entries(one.labels).sort());
    const row = rows.get(key) ?? { ...one.labels };
    row[`value:${one.legend}`] = one.points.at(-1)[1];
    rows.set(key, row);
    Object.keys(one.labels).forEach((label) => labels.add(label));
  }
  const ordered = [...rows.values()].sort((a, b) => (b[`value:${sort}`] ?? -1) - (a[`value:${sort}`] ?? -1));
  const place = panel.transformations.at(-1).options.indexByName;
  const fields = [...labels].sort((a, b) => place[a] - place[b]).map((label) => ({
    name: label,
    type: FieldType.string,
    config: { custom: { ...panel.fieldConfig.defaults.custom } },
    values: ordered.map((row) => row[label] ?? ''),
    display: getDisplayProcessor({ field: { type: FieldType.string, config: {} }, theme }),
  }));
  for (const target of panel.targets) {
    const name = target.legendFormat;
    fields.push({ ...configured(panel, name, theme), values: ordered.map((row) => row[`value:${name}`] ?? null) });
  }
  return toDataFrame({ fields });
}
