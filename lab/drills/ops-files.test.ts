/** The programs that read `ops/` accept it: Prometheus its rules and configuration, Helm the chart, systemd its units. */
import { execFileSync, spawnSync } from 'node:child_process';
import { readdir } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { test } from 'tap';
import { missingProgram } from '../../test/support/missing-program.ts';
import { projectFile } from '../../test/support/project.ts';
import { ALERTS, withoutPrometheus } from '../../test/support/prometheus.ts';

const pathOf = (file: string) => fileURLToPath(projectFile(file));
const promtool = (...args: string[]) => execFileSync('promtool', args, { encoding: 'utf8', stdio: 'pipe' });

test('promtool accepts the rules and the configuration', { skip: withoutPrometheus }, async () => {
  promtool('check', 'rules', ALERTS);
  promtool('check', 'config', pathOf('ops/prometheus/prometheus.yml'));
});

test('helm lint accepts the chart', { skip: missingProgram('helm', 'version') ?? false }, async () => {
  const rules = `monitoring.rules=${ALERTS}`;
  const all = ['--set', 'ingress.enabled=true,monitoring.enabled=true', '--set-file', rules];
  execFileSync('helm', ['lint', '--strict', pathOf('ops/helm'), ...all], { stdio: 'pipe' });
});

test('systemd-analyze finds no fault in the units', {
  skip: missingProgram('systemd-analyze', '--version') ?? false,
}, async (t) => {
  const units = await readdir(projectFile('ops/systemd/'));
  const files = units.map((name) => `ops/systemd/${name}`);
  const { status, stderr } = spawnSync('systemd-analyze', ['verify', '--man=no', ...files], { encoding: 'utf8' });
  t.same([status, stderr.split('\n').filter((line) => line.includes('speechgate'))], [0, []]);
});
