// Asks Prometheus what a panel asks, with a value for each variable.

const VALUES = {
  $__rate_interval: '10s',
  $__range: '5m',
  $cluster: '.*',
  $namespace: '.+',
  $workload: '.+',
  $gpu: '.+',
  $method: 'idle-separate',
};

export function substituted(expr) {
  return expr.replace(/\$\w+/g, (name) => {
    if (!(name in VALUES)) {
      throw new Error(`nobody knows the variable ${name}`);
    }
    return VALUES[name];
  });
}

async function ask(base, path, parameters) {
  const answer = await fetch(`${base}/api/v1/${path}?${new URLSearchParams(parameters)}`);
  const body = await answer.json();
  if (body.status !== 'success') {
    throw new Error(body.error);
  }
  return body.data.result;
}

// The series of each target: {refId, legend, labels, points: [[seconds, value]]}.
export async function seriesOf(base, panel, range) {
  const found = await Promise.all(
    panel.targets.map(async (target) => {
      const query = substituted(target.expr);
      const result = target.instant
        ? await ask(base, 'query', { query, time: range.to })
        : await ask(base, 'query_range', { query, start: range.from, end: range.to, step: range.step });
      return result.map((one) => ({
        refId: target.refId,
        legend: target.legendFormat.replace(/\{\{(\w+)\}\}/g, (_, label) => one.metric[label] ?? ''),
        labels: one.metric,
        points: (one.values ?? [one.value]).map(([time, value]) => [time, Number(value)]),
      }));
    })
  );
  return found.flat();
}
