import { invalidParameter } from './api-error.ts';
import { API_PREFIX } from './api-prefix.ts';
import type { Parameters } from './parameters.ts';

interface Listed {
  readonly id: string;
  readonly created: number;
}

/** Which part of a list is asked for. */
export interface Page {
  readonly limit: number;
  readonly after: string | undefined;
  readonly inTime: (created: number) => boolean;
}

const COMPARE = {
  gt: (value: number, bound: number) => value > bound,
  gte: (value: number, bound: number) => value >= bound,
  lt: (value: number, bound: number) => value < bound,
  lte: (value: number, bound: number) => value <= bound,
};

/** Takes the parameters that all of Stripe's lists have: limit, starting_after and created. */
export function readPage(parameters: Parameters): Page {
  const limit = parameters.integer('limit', 1, 100) ?? 10;
  const after = parameters.text('starting_after', 200);
  const created = parameters.group('created');
  const bounds = (['gt', 'gte', 'lt', 'lte'] as const).map(
    (name) => [name, created?.integer(name, 0, Number.MAX_SAFE_INTEGER)] as const,
  );
  created?.end();
  const inTime = (time: number) => bounds.every(([name, bound]) => bound === undefined || COMPARE[name](time, bound));
  return { limit, after, inTime };
}

/** The part of the records that was asked for, newest first, in the form of Stripe's lists. */
export function listOf<Record extends Listed>(
  records: ReadonlyMap<string, Record>,
  page: Page,
  path: string,
  options: { matches: (record: Record) => boolean; show: (record: Record) => object },
) {
  let newestFirst = [...records.values()].reverse();
  if (page.after !== undefined) {
    const position = newestFirst.findIndex((record) => record.id === page.after);
    if (position < 0) throw invalidParameter('starting_after', 'resource_missing', `No such object: ${page.after}`);
    newestFirst = newestFirst.slice(position + 1);
  }
  const found: Record[] = [];
  for (const record of newestFirst) {
    if (found.length > page.limit) break;
    if (page.inTime(record.created) && options.matches(record)) found.push(record);
  }
  return {
    object: 'list',
    url: `${API_PREFIX}${path}`,
    has_more: found.length > page.limit,
    data: found.slice(0, page.limit).map(options.show),
  };
}
