import { CompiledQuery, type QueryResult } from 'kysely';
import type { Database } from './database.ts';

const texts = new WeakMap<TemplateStringsArray, string>();

/**
 * A statement of every paid request: like Kysely's `sql`, but its text is put together once for its place in the code.
 * Every value is a parameter, and none may be a fragment of SQL.
 */
export const statement = <Row>(parts: TemplateStringsArray, ...parameters: unknown[]) => ({
  execute(db: Database): Promise<QueryResult<Row>> {
    let text = texts.get(parts);
    if (text === undefined) {
      text = parts.reduce((before, part, index) => `${before}$${index}${part}`);
      texts.set(parts, text);
    }
    return db.executeQuery<Row>(CompiledQuery.raw(text, parameters));
  },
});
