import type { Catalog } from '../config/catalog.ts';
import { type ErrorCode, type Failure, failure } from './structured-error.ts';

/** JSON may write a character in this many bytes: `\u0000`. */
const MOST_BYTES = 6;
const OTHER_MEMBERS_BYTES = 8192;

/** Of a body with the longest text of the catalog. */
export const bodyLimitOf = ({ models }: Catalog): number =>
  OTHER_MEMBERS_BYTES + MOST_BYTES * Math.max(...models.map(({ maxInputCharacters }) => maxInputCharacters));

export function readContentType(header: string | undefined): { type: string; charset: string | undefined } {
  const [type = '', ...parameters] = (header ?? '').split(';');
  const charset = parameters
    .map((parameter) => /^\s*charset\s*=\s*"?([^"\s]+)"?\s*$/i.exec(parameter)?.[1])
    .find((value) => value !== undefined);
  return { type: type.trim().toLowerCase(), charset: charset?.toLowerCase() };
}

/** Refuses a content type, charset or encoding that the operation does not read (R51); otherwise returns undefined. */
export function refuseContentType(headers: Record<string, unknown>, consumes: readonly string[]) {
  const { type, charset } = readContentType(headers['content-type'] as string | undefined);
  const coding = headers['content-encoding'];
  const details = { field: 'content-type', rule: 'enum', allowed: [...consumes], charset: 'utf-8' };
  if (!consumes.includes(type)) {
    return failure('UNSUPPORTED_CONTENT_TYPE', `content-type must be ${consumes.join(' or ')}.`, details);
  }
  if (charset !== undefined && charset !== 'utf-8' && charset !== 'utf8') {
    return failure('UNSUPPORTED_CONTENT_TYPE', 'The charset of the body must be UTF-8.', details);
  }
  if (coding !== undefined && coding !== 'identity') {
    return failure('UNSUPPORTED_CONTENT_TYPE', 'The body must be sent without a content-encoding.', {
      field: 'content-encoding',
      rule: 'enum',
      allowed: ['identity'],
    });
  }
  return undefined;
}

export interface Unreadable {
  readonly outcome: 'unreadable';
  readonly failure: Failure<ErrorCode>;
}

const unreadable = (answer: Failure<ErrorCode>): Unreadable => ({ outcome: 'unreadable', failure: answer });

const utf8 = new TextDecoder('utf-8', { fatal: true });

/** Decodes JSON to its value, a form to an object (lists for repeated fields), and text to a string. */
export function decodeBody(
  type: string,
  bytes: Buffer,
): { readonly outcome: 'decoded'; readonly value: unknown } | Unreadable {
  let text: string;
  try {
    text = utf8.decode(bytes);
  } catch {
    const code = type === 'application/json' ? 'INVALID_JSON' : 'INVALID_REQUEST';
    return unreadable(failure(code, 'The body is not valid UTF-8.', { field: 'body', rule: 'utf-8' }));
  }
  if (type === 'application/json') {
    try {
      return { outcome: 'decoded', value: JSON.parse(text) };
    } catch {
      return unreadable(failure('INVALID_JSON', 'The body is not valid JSON.', { field: 'body', rule: 'json' }));
    }
  }
  if (type === 'application/x-www-form-urlencoded') {
    if (!isPercentEncoded(text)) {
      const details = { field: 'body', rule: 'percent-encoding' };
      return unreadable(failure('INVALID_REQUEST', 'The form is not valid percent-encoded UTF-8.', details));
    }
    const form = new URLSearchParams(text);
    const once = ([name, value]: [string, string]) => [name, form.getAll(name).length > 1 ? form.getAll(name) : value];
    return { outcome: 'decoded', value: Object.fromEntries([...form].map(once)) };
  }
  if (!isSpeechRequest(text)) return { outcome: 'decoded', value: text };
  return unreadable(
    failure(
      'INVALID_REQUEST',
      'content-type is text/plain, but the body is a request in JSON. Send it with content-type: application/json. You were not charged.',
      { field: 'content-type', rule: 'enum', allowed: ['application/json'] },
    ),
  );
}

const TEXT_MEMBERS = ['text', 'input'];

/** Detects a JSON request sent as text/plain, as `fetch` does with a string body (R70). */
function isSpeechRequest(text: string): boolean {
  const trimmed = text.trim();
  if (!trimmed.startsWith('{')) return false;
  try {
    const value = JSON.parse(trimmed);
    return TEXT_MEMBERS.some((name) => typeof value[name] === 'string');
  } catch {
    return false;
  }
}

export function isPercentEncoded(text: string): boolean {
  try {
    decodeURIComponent(text);
    return true;
  } catch {
    return false;
  }
}
