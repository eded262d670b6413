import type { IncomingMessage } from 'node:http';
import { ApiError, invalid } from './api-error.ts';

/** Beyond the longest input with every character escaped, and instructions as long. */
const MAX_BYTES = 256 * 1024;

/**
 * The body of a request, a JSON object.
 * @throws ApiError
 */
export async function readJson(request: IncomingMessage): Promise<Readonly<Record<string, unknown>>> {
  if (!/^application\/json\b/i.test(request.headers['content-type'] ?? '')) {
    throw invalid(
      null,
      'Send the request as JSON, with the header content-type: application/json.',
      'invalid_content_type',
    );
  }
  const parts: Buffer[] = [];
  let length = 0;
  for await (const bytes of request) {
    length += bytes.length;
    if (length > MAX_BYTES) {
      throw new ApiError(
        { status: 413, type: 'invalid_request_error', code: 'request_too_large' },
        `The request has more than ${MAX_BYTES} bytes.`,
        { connection: 'close' },
      );
    }
    parts.push(bytes);
  }
  const body = parse(Buffer.concat(parts).toString());
  if (typeof body !== 'object' || body === null || Array.isArray(body)) {
    throw invalid(null, 'The body is no JSON object.', 'invalid_json');
  }
  return body as Record<string, unknown>;
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
