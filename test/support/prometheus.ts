import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Test } from 'tap';
import { freePort } from '../../src/sandbox/free-port.ts';
import { startCommand } from './child.ts';
import { missingProgram } from './missing-program.ts';
import { projectFile } from './project.ts';
import { temporaryFolder } from './temporary-folder.ts';
import { until } from './until.ts';

/** Why tests with Prometheus are skipped; false where it is installed. */
export const withoutPrometheus: string | false =
  missingProgram('prometheus', '--version') ?? missingProgram('promtool', '--version') ?? false;

export const ALERTS = fileURLToPath(projectFile('ops/prometheus/alerts.yml'));

/**
 * The alerts, for a world in which time goes faster: what has to last for minutes lasts no time, what is counted over an
 * hour is counted over seconds, and any debt is a large one.
 */
const hurried = (rules: string): string =>
  rules
    .replaceAll(/for: \w+/g, 'for: 0s')
    .replaceAll(/\[(2m|5m|1h)\]/g, '[12s]')
    .replaceAll('[1d]', '[40s]')
    .replaceAll(/_seconds\) > (300|900)\b/g, '_seconds) > 1')
    .replace('/ 1e6 > 10', '> 0');

export interface Prometheus {
  /** The names of the alerts that fire. */
  firing(): Promise<string[]>;
  /** The values of an expression now. @throws when it is none */
  query(expression: string): Promise<{ metric: Record<string, string>; value: number }[]>;
}

/** A Prometheus that collects from one address every two seconds, and evaluates the alerts. */
export async function startPrometheus(t: Test, target: string): Promise<Prometheus> {
  const folder = await temporaryFolder(t);
  await writeFile(join(folder, 'alerts.yml'), hurried(await readFile(ALERTS, 'utf8')));
  await writeFile(
    join(folder, 'prometheus.yml'),
    `global: { scrape_interval: 2s, evaluation_interval: 1s }
rule_files: [alerts.yml]
scrape_configs: [{ job_name: speechgate, static_configs: [{ targets: ["${target}"] }] }]\n`,
  );
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  startCommand(
    t,
    [
      'prometheus',
      '--config.file=prometheus.yml',
      '--storage.tsdb.path=data',
      `--web.listen-address=127.0.0.1:${port}`,
    ],
    { cwd: folder },
  );
  const read = async (path: string) => {
    const { status, data, error } = (await (await fetch(url + path)).json()) as {
      status: string;
      // biome-ignore lint/suspicious/noExplicitAny: what Prometheus' API answers.
      data: any;
      error: string;
    };
    if (status !== 'success') throw new Error(error);
    return data;
  };
  await until(() =>
    fetch(`${url}/-/ready`).then(
      ({ ok }) => ok,
      () => false,
    ),
  );
  return {
    firing: async () =>
      (await read('/api/v1/alerts')).alerts
        .filter(({ state }: { state: string }) => state === 'firing')
        .map(({ labels }: { labels: { alertname: string } }) => labels.alertname),
    query: async (expression) =>
      (await read(`/api/v1/query?query=${encodeURIComponent(expression)}`)).result.map(
        ({ metric, value: [, text] }: { metric: Record<string, string>; value: [number, string] }) => ({
          metric,
          value: Number(text),
        }),
      ),
  };
}
