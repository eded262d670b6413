import type { IncomingMessage } from 'node:http';
import { decodeBody, readContentType, refuseContentType } from '../http/body.ts';
import { ApiError, invalid } from './api-error.ts';

/** Beyond the longest input with every character escaped, and instructions as long. */
const MAX_BYTES = 256 * 1024;
const JSON_TYPE = 'application/json';

/**
 * The body of a request, a JSON object, read as strictly as the service reads it.
 * @throws ApiError
 */
export async function readJson(request: IncomingMessage): Promise<Readonly<Record<string, unknown>>> {
  const { headers } = request;
  if (readContentType(headers['content-type']).type !== JSON_TYPE) {
    throw invalid(
      null,
      `Send the request as JSON, with the header content-type: ${JSON_TYPE}. Nothing was bought.`,
      'invalid_content_type',
    );
  }
  const refusal = refuseContentType(headers, [JSON_TYPE]);
  if (refusal) {
    throw new ApiError(
      { status: refusal.status, type: 'invalid_request_error', code: 'invalid_content_type' },
      `${refusal.body.error.message} Nothing was bought.`,
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
  const decoded = decodeBody(JSON_TYPE, Buffer.concat(parts));
  if (decoded.outcome === 'unreadable') {
    throw invalid(null, `${decoded.failure.body.error.message} Nothing was bought.`, 'invalid_json');
  }
  const { value } = decoded;
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw invalid(null, 'The body is not a JSON object. Nothing was bought.', 'invalid_json');
  }
  return value as Record<string, unknown>;
}
