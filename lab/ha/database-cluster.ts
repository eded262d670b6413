import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { type Child, type Owner, startCommand } from '../../test/support/child.ts';
import { until } from '../../test/support/until.ts';
import { processTree } from '../bench/processes.ts';
import { signal } from '../soak/world/parts.ts';
import { MACHINES, type Machine, type Place } from './place.ts';

const START_MS = 120_000;
const DATABASE_MACHINES = MACHINES.slice(0, 2);

/**
 * `postgres`: only PostgreSQL dies and its Patroni notices. `machine`: Patroni dies too, so its key in etcd must
 * expire. `lost commits`: also, the standby misses the last seconds. Only asynchronous replication allows that.
 */
export type Death = 'postgres' | 'machine' | 'lost commits';

/** How long the primary commits without its standby. */
const LOST_MS = 3_000;
const ASYNCHRONOUS = `synchronous_mode: false
    # Else Patroni would rather have no primary than lose commits.
    maximum_lag_on_failover: 1073741824`;

type Replication = 'synchronous' | 'asynchronous';

interface Member {
  readonly role: string;
  readonly state: string;
}

/** PostgreSQL on two machines under Patroni and etcd on three, with the files in ops/ha. */
export class DatabaseCluster {
  readonly #t: Owner;
  readonly #place: Place;
  readonly #replication: Replication;
  readonly #patronis = new Map<string, Child>();
  readonly #etcds = new Map<string, Child>();

  constructor(t: Owner, place: Place, replication: Replication) {
    this.#t = t;
    this.#place = place;
    this.#replication = replication;
  }

  /** Resolves when both machines receive commits. */
  async start(): Promise<void> {
    await Promise.all(MACHINES.map((machine) => this.#startEtcd(machine)));
    const [first, second] = DATABASE_MACHINES as [Machine, Machine];
    await this.#startPatroni(first);
    try {
      await until(async () => (await this.#member(first))?.role === 'master', START_MS);
      await this.#startPatroni(second);
      await this.untilReplicated();
    } catch (error) {
      throw new Error(this.output(), { cause: error });
    }
  }

  /** Kills the primary with SIGKILL. @returns its machine */
  async killPrimary(death: Death): Promise<Machine> {
    const primary = await this.#primary();
    if (death === 'lost commits') {
      await this.run('alter role replicator nologin');
      await this.run('select pg_terminate_backend(pid, 5000) from pg_stat_replication');
      await sleep(LOST_MS);
    }
    const postmaster = Number((await readFile(join(this.#data(primary), 'postmaster.pid'), 'utf8')).split('\n')[0]);
    const patroni = this.#patronis.get(primary.name) as Child;
    const doomed = processTree(postmaster);
    const ended = death === 'machine' ? patroni.stop('SIGKILL') : undefined;
    signal(doomed, 'SIGKILL');
    await ended;
    return primary;
  }

  /** Resolves when the other machine is the primary. */
  async untilTakenOver(dead: Machine): Promise<void> {
    const other = DATABASE_MACHINES.find(({ name }) => name !== dead.name) as Machine;
    await until(async () => (await this.#member(other))?.role === 'master', START_MS);
    await this.run('alter role replicator login');
  }

  /** Restarts Patroni if it was killed. Resolves when both machines receive commits again. */
  async revive(machine: Machine): Promise<void> {
    if (this.#patronis.get(machine.name)?.process.signalCode === 'SIGKILL') await this.#startPatroni(machine);
    await this.untilReplicated();
  }

  async untilReplicated(): Promise<void> {
    await until(async () => {
      const members = await Promise.all(DATABASE_MACHINES.map((machine) => this.#member(machine)));
      if (!members.some((member) => member?.role === 'master')) return false;
      return (await this.#standbys().catch((): string[] => [])).includes(
        this.#replication === 'synchronous' ? 'sync' : 'async',
      );
    }, START_MS);
  }

  /** Runs SQL on the primary as superuser. */
  async run(sql: string, database = 'postgres'): Promise<pg.QueryResult> {
    const port = await this.#place.port(`${(await this.#primary()).address}:5432`);
    const client = new pg.Client(`postgres://postgres:superuser-password@127.0.0.1:${port}/${database}`);
    await client.connect();
    return client.query(sql).finally(() => client.end());
  }

  output(): string {
    return [...this.#etcds, ...this.#patronis]
      .map(([name, child]) => `${name}:\n${child.output().slice(-2000)}`)
      .join('\n');
  }

  async #standbys(): Promise<string[]> {
    return (await this.run('select sync_state from pg_stat_replication')).rows.map(({ sync_state }) => sync_state);
  }

  async #primary(): Promise<Machine> {
    for (const machine of DATABASE_MACHINES) if ((await this.#member(machine))?.role === 'master') return machine;
    return assert.fail(`there is no primary\n${this.output()}`);
  }

  async #member({ address }: Machine): Promise<Member | undefined> {
    const port = await this.#place.port(`${address}:8008`);
    try {
      return (await (await fetch(`http://127.0.0.1:${port}/patroni`)).json()) as Member;
    } catch {
      return undefined;
    }
  }

  #data = ({ name }: Machine): string => join(this.#place.folder, `data-${name}`);

  async #startEtcd(machine: Machine): Promise<void> {
    const directory = await this.#place.directory(`etcd-${machine.name}`);
    const file = await this.#place.write(`etcd-${machine.name}.yml`, 'etcd.yml', [
      [/^name: .*$/m, `name: ${machine.name}`],
      [/^data-dir: .*$/m, `data-dir: ${directory}`],
      ...['listen-client-urls', 'advertise-client-urls'].map(
        (key) => [new RegExp(`^${key}: .*$`, 'm'), `${key}: http://${machine.address}:2379`] as const,
      ),
      ...['listen-peer-urls', 'initial-advertise-peer-urls'].map(
        (key) => [new RegExp(`^${key}: .*$`, 'm'), `${key}: http://${machine.address}:2380`] as const,
      ),
    ]);
    const { identity } = this.#place;
    this.#etcds.set(
      `etcd ${machine.name}`,
      startCommand(this.#t, ['etcd', '--config-file', file], { identity, cwd: directory }),
    );
  }

  async #startPatroni(machine: Machine): Promise<void> {
    const { folder, identity } = this.#place;
    const file = await this.#place.write(`patroni-${machine.name}.yml`, 'patroni.yml', [
      [/^name: .*$/m, `name: ${machine.name}`],
      ...(this.#replication === 'synchronous' ? [] : [['synchronous_mode: true', ASYNCHRONOUS] as const]),
      [/(?<=^restapi:\n {2}listen: )\S+/m, `${machine.address}:8008`],
      [/(?<= {2}connect_address: )\S+(?=:8008)/m, machine.address],
      [/(?<=^postgresql:\n {2}listen: )\S+/m, `${machine.address}:5432`],
      [/(?<= {2}connect_address: )\S+(?=:5432)/m, machine.address],
      [/(?<=data_dir: )\S+/, this.#data(machine)],
      [/(?<=pgpass: )\S+/, join(folder, `pgpass-${machine.name}`)],
      [/(?<=unix_socket_directories: )\S+/, await this.#place.directory(`s-${machine.name}`)],
    ]);
    const child = startCommand(this.#t, ['patroni', file], { identity, cwd: folder, env: { HOME: folder } });
    this.#patronis.set(machine.name, child);
    this.#t.teardown(async () => {
      // PostgreSQL would outlive a killed Patroni.
      const lines = await readFile(join(this.#data(machine), 'postmaster.pid'), 'utf8').catch(() => '');
      const pid = Number(lines.split('\n')[0]);
      if (pid > 0) signal(processTree(pid), 'SIGKILL');
    });
  }
}
