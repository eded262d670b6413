import { CompiledQuery, type QueryResult } from 'kysely';
import type { Database } from './database.ts';

/** A part of a statement, for whoever puts it together. Its values may be fragments themselves. */
export class Fragment {
  readonly parts: TemplateStringsArray;
  readonly values: readonly unknown[];

  constructor(parts: TemplateStringsArray, values: readonly unknown[]) {
    this.parts = parts;
    this.values = values;
  }
}

/** SQL for a place in a statement. Every value is a parameter, or a fragment. */
export const fragment = (parts: TemplateStringsArray, ...values: unknown[]): Fragment => new Fragment(parts, values);

type Shape = readonly (TemplateStringsArray | undefined)[];

interface Text {
  /** What stands at each place, in their order: the parts of a fragment, or undefined for a parameter. */
  readonly shape: Shape;
  readonly text: string;
}

const texts = new WeakMap<TemplateStringsArray, Text[]>();

export interface Statement<Row> {
  execute(db: Database): Promise<QueryResult<Row>>;
}

/**
 * A statement of every paid request: like Kysely's `sql`, but its text is put together once for its place in the code
 * and the fragments that come there, which must be of a closed set. Every value is a parameter, or a fragment.
 */
export const statement = <Row>(parts: TemplateStringsArray, ...values: unknown[]): Statement<Row> => ({
  execute(db) {
    const shape: (TemplateStringsArray | undefined)[] = [];
    const parameters: unknown[] = [];
    collect(values, shape, parameters);
    const ofPlace = texts.get(parts) ?? [];
    let known = ofPlace.find((text) => isSame(text.shape, shape));
    if (!known) {
      known = { shape, text: textOf(parts, values, { count: 0 }) };
      texts.set(parts, [...ofPlace, known]);
    }
    return db.executeQuery<Row>(CompiledQuery.raw(known.text, parameters));
  },
});

function collect(values: readonly unknown[], shape: (TemplateStringsArray | undefined)[], parameters: unknown[]): void {
  for (const value of values) {
    if (value instanceof Fragment) {
      shape.push(value.parts);
      collect(value.values, shape, parameters);
    } else {
      shape.push(undefined);
      parameters.push(value);
    }
  }
}

const isSame = (known: Shape, shape: Shape): boolean =>
  known.length === shape.length && known.every((parts, index) => parts === shape[index]);

function textOf(parts: TemplateStringsArray, values: readonly unknown[], parameters: { count: number }): string {
  return parts.reduce((before, part, index) => {
    const value = values[index - 1];
    const between =
      value instanceof Fragment ? textOf(value.parts, value.values, parameters) : `$${++parameters.count}`;
    return before + between + part;
  });
}
