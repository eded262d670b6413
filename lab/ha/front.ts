import { join } from 'node:path';
import { type Child, type Owner, startChild, startCommand } from '../../test/support/child.ts';
import { until } from '../../test/support/until.ts';
import type { DatabaseCluster } from './database-cluster.ts';
import type { Place } from './place.ts';

/** Named statements need PgBouncer 1.21 or later. */
interface Pooling {
  readonly mode: 'session' | 'transaction';
  readonly namedStatements: boolean;
  readonly pgbouncer: string;
}

type GatewayName = 'one' | 'two';
const ADDRESS = { one: '10.0.0.11', two: '10.0.0.12' } as const;
const ROLE_SETTINGS = `
  alter role speechgate set statement_timeout = '10s';
  alter role speechgate set idle_in_transaction_session_timeout = '10s';
  alter role speechgate set plan_cache_mode = 'force_generic_plan'`;

/** Everything in front of the database: HAProxy, PgBouncer, two gateways and a worker, with the files in ops/ha. */
export class Front {
  readonly #t: Owner;
  readonly #place: Place;
  readonly #pooling: Pooling;
  readonly #gateways = new Map<GatewayName | 'worker', Child>();
  #pgbouncer: Child | undefined;
  #env: Record<string, string> = {};
  url = '';
  /** URL of the primary without PgBouncer. */
  databaseUrl = '';

  constructor(t: Owner, place: Place, pooling: Pooling) {
    this.#t = t;
    this.#place = place;
    this.#pooling = pooling;
  }

  /** Settings for commands beside the gateways. */
  get env(): Record<string, string> {
    return { ...this.#env, DATABASE_URL: this.databaseUrl };
  }

  /** @param env settings of the gateways, except those of the database */
  async start(cluster: DatabaseCluster, migrate: (url: string) => Promise<unknown>, env: Record<string, string>) {
    const place = this.#place;
    await cluster.run("create role speechgate login password 'speech-password'");
    await cluster.run('create database speechgate owner speechgate');
    const [publicPort, primaryPort, poolerPort] = [
      await place.port('127.0.0.1:8080'),
      await place.port('127.0.0.1:5000'),
      await place.port('127.0.0.1:6432'),
    ];
    const files = await this.#haproxyFile();
    const haproxy = startCommand(this.#t, ['haproxy', '-f', files], {});
    this.databaseUrl = `postgres://speechgate:speech-password@127.0.0.1:${primaryPort}/speechgate`;
    await until(async () => {
      if (haproxy.process.exitCode !== null) throw new Error(haproxy.output());
      return migrate(this.databaseUrl).then(
        () => true,
        () => false,
      );
    });
    await cluster.run(ROLE_SETTINGS);
    await this.#writePooler(poolerPort);
    await this.startPgbouncer();
    this.url = `http://127.0.0.1:${publicPort}`;
    this.#env = {
      ...env,
      BASE_URL: this.url,
      TRUST_PROXY: '127.0.0.1',
      DATABASE_URL: `postgres://speechgate:speech-password@127.0.0.1:${poolerPort}/speechgate`,
      DATABASE_NAMED_STATEMENTS: this.#pooling.namedStatements ? 'on' : 'off',
    };
    await this.#startWorker();
    await Promise.all([this.startGateway('one'), this.startGateway('two')]);
    await until(async () => (await fetch(this.url).catch(() => undefined))?.status === 200);
  }

  async startGateway(name: GatewayName): Promise<void> {
    const [PORT, ADMIN_PORT] = [
      String(await this.#place.port(`${ADDRESS[name]}:8080`)),
      String(await this.#place.port(`${ADDRESS[name]}:9080`)),
    ];
    const child = startChild(this.#t, 'src/main.ts', { ...this.#env, PORT, ADMIN_PORT }, ['--role=web']);
    await child.printed(/listens on/);
    await until(async () => (await fetch(`http://127.0.0.1:${ADMIN_PORT}/readyz`)).status === 200);
    this.#gateways.set(name, child);
  }

  /** Drains, stops, restarts and readmits it, as in docs/operate.md. @returns exit code of the old process */
  async replaceGateway(name: GatewayName): Promise<number | null | undefined> {
    await this.#tell(`set server gateways/${name} state drain`);
    const code = await this.#gateways.get(name)?.stop();
    await this.startGateway(name);
    await this.#tell(`set server gateways/${name} state ready`);
    await until(async () => new RegExp(`^gateways,${name},.*,UP,`, 'm').test(await this.#tell('show stat')));
    return code;
  }

  /** Cuts all connections. SIGTERM would wait for clients from version 1.23 on. */
  async restartPgbouncer(): Promise<void> {
    await this.#pgbouncer?.stop('SIGKILL');
    await this.startPgbouncer();
  }

  async startPgbouncer(): Promise<void> {
    const { folder, identity } = this.#place;
    const { pgbouncer } = this.#pooling;
    this.#pgbouncer = startCommand(this.#t, [pgbouncer, join(folder, 'pgbouncer.ini')], { identity });
    await this.#pgbouncer.printed(/process up/);
  }

  output(): string {
    const all = [...this.#gateways, ['pgbouncer', this.#pgbouncer] as const];
    return all.map(([name, child]) => `${name}:\n${child?.output().slice(-3000)}`).join('\n');
  }

  async #startWorker(): Promise<void> {
    const child = startChild(this.#t, 'src/main.ts', this.#env, ['--role=worker']);
    await child.printed(/runs jobs/);
    this.#gateways.set('worker', child);
  }

  async #haproxyFile(): Promise<string> {
    const port = async (documented: string) => String(await this.#place.port(documented));
    return this.#place.write('haproxy.cfg', 'haproxy.cfg', [
      ['bind :8080', 'bind 127.0.0.1:8080'],
      [/(?<=10\.0\.0\.11:8080 check port )9080/g, await port('10.0.0.11:9080')],
      [/(?<=10\.0\.0\.12:8080 check port )9080/g, await port('10.0.0.12:9080')],
      ['check port 8008 inter', 'inter'],
      [/db1 10\.0\.0\.1:5432/, `db1 10.0.0.1:5432 check port ${await port('10.0.0.1:8008')}`],
      [/db2 10\.0\.0\.2:5432/, `db2 10.0.0.2:5432 check port ${await port('10.0.0.2:8008')}`],
    ]);
  }

  async #writePooler(listenPort: number): Promise<void> {
    const { mode, namedStatements } = this.#pooling;
    const users = await this.#place.file('userlist.txt', '"speechgate" "speech-password"\n');
    await this.#place.write('pgbouncer.ini', 'pgbouncer.ini', [
      [/port=5000/, `port=${await this.#place.port('127.0.0.1:5000')}`],
      [/listen_port = .*/, `listen_port = ${listenPort}`],
      [/auth_file = .*/, `auth_file = ${users}`],
      [/pool_mode = .*/, `pool_mode = ${mode}`],
      ...(mode === 'transaction' && namedStatements ? [[/^;(?=max_prepared)/m, ''] as const] : []),
    ]);
  }

  async #tell(command: string): Promise<string> {
    const socket = join(this.#place.folder, 'haproxy.sock');
    const child = startCommand(this.#t, ['sh', '-c', `echo '${command}' | socat stdio ${socket}`], {});
    await child.ended();
    return child.output();
  }
}
