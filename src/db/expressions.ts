import { type AliasedRawBuilder, type Expression, type RawBuilder, type SqlBool, sql } from 'kysely';

/** Names a statement in logs and traces; others are named by their table. */
export const statementName = (name: string): RawBuilder<unknown> => sql.raw(`/* ${name} */`);

export const now = sql<Date>`now()`;

/** Not that of the transaction's start, as `now` is. */
export const clockTime = sql<Date>`clock_timestamp()`;

export const currentUser = sql<string>`current_user`;

type Seconds = number | Expression<number>;

export const secondsAfter = (time: Expression<Date | null>, seconds: Seconds): RawBuilder<Date> =>
  sql`${time} + make_interval(secs => ${seconds}::double precision)`;

export const secondsBefore = (time: Expression<Date | null>, seconds: Seconds): RawBuilder<Date> =>
  sql`${time} - make_interval(secs => ${seconds}::double precision)`;

export const secondsFromNow = (seconds: Seconds): RawBuilder<Date> => secondsAfter(now, seconds);

export const secondsAgo = (seconds: Seconds): RawBuilder<Date> => secondsBefore(now, seconds);

export const secondsSince = (time: Expression<Date | null>): RawBuilder<number> =>
  sql`extract(epoch from now() - ${time})::double precision`;

export const unixSeconds = (time: Expression<Date | null>): RawBuilder<number> =>
  sql`extract(epoch from ${time})::double precision`;

export const daysAgo = (days: number): RawBuilder<Date> => sql`now() - make_interval(days => ${days})`;

/** A time in PostgreSQL's text form, which keeps the microseconds that a Date loses. */
export const timestamp = (text: string): RawBuilder<Date> => sql`${text}::timestamptz`;

/** One array parameter, so that the statement's text is the same for any number of values. */
export const anyOf = <T>(values: readonly T[]): RawBuilder<T> => sql`any(${values})`;

/** Evaluates the subquery once and first; with `in` the planner may join it. */
export const anyFrom = <T>(rows: Expression<{ id: T }>): RawBuilder<T> => sql`any(array${rows})`;

/** Sets a parameter of the server until the transaction ends. */
export const localSetting = (name: string, value: string): RawBuilder<string> =>
  sql`set_config(${sql.lit(name)}, ${sql.lit(value)}, true)`;

/**
 * The commit of a statement that evaluates this does not wait for the disk. A crash may lose all that the statement wrote.
 * @see https://www.postgresql.org/docs/current/wal-async-commit.html
 */
export const asynchronousCommit = localSetting('synchronous_commit', 'off');

type ColumnType = 'uuid' | 'text' | 'integer' | 'bigint';

/** Rows for `from`, one per index of the arrays. An undefined value is null. */
export const unnest = <Row extends object, Alias extends string>(
  alias: Alias,
  columns: { readonly [Name in keyof Row]: readonly [ColumnType, readonly (Row[Name] | undefined)[]] },
): AliasedRawBuilder<Row, Alias> => {
  const arrays = Object.values<readonly [ColumnType, unknown]>(columns).map(
    ([type, values]) => sql`${values}::${sql.raw(type)}[]`,
  );
  const names = Object.keys(columns).map((name) => sql.id(name));
  return sql<Row>`unnest(${sql.join(arrays)})`.as<Alias>(sql`${sql.id(alias)} (${sql.join(names)})`);
};

/** A lease that ends more than `seconds` ahead has ended too: the clock stepped back. */
export const leaseHasEnded = (seconds: number): RawBuilder<SqlBool> =>
  sql`lease_has_ended(lease_until, ${seconds}::double precision)`;
