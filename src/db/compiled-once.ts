import type { CompiledQuery } from 'kysely';
import type { Database } from './database.ts';

/** Stands for a value while the statement is built. */
class Placeholder {
  constructor(readonly name: string) {}
}

/**
 * A statement that is built and compiled only once, at its first execution: for those of every request.
 * @param build gets a placeholder for each value: it must pass them on as parameters, and not look at them
 */
export function compiledOnce<Values extends object, Row>(
  build: (db: Database, values: Values) => { compile(db: Database): CompiledQuery<Row> },
): (db: Database, values: Values) => Promise<Row[]> {
  const placeholders = new Proxy({}, { get: (_, name) => new Placeholder(String(name)) }) as Values;
  let compiled: CompiledQuery<Row> | undefined;
  return async (db, values) => {
    compiled ??= build(db, placeholders).compile(db);
    const parameters = compiled.parameters.map((parameter) =>
      parameter instanceof Placeholder ? values[parameter.name as keyof Values] : parameter,
    );
    return (await db.executeQuery<Row>({ ...compiled, parameters })).rows;
  };
}
