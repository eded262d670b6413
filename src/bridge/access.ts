import { createHash, timingSafeEqual } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import { ApiError } from './api-error.ts';

const NAMES = ['127.0.0.1', 'localhost', '[::1]'];

/**
 * Lets only programs of this machine in, and of its users only those who have the token. A page of another site can send requests here from the user's browser: those
 * name that site in Origin, and where it has pointed its own name at this machine, in Host.
 * @param token null for all users of this machine
 * @throws ApiError
 */
export function admit({ headers, socket }: IncomingMessage, token: string | null): void {
  const hosts = NAMES.flatMap((name) =>
    socket.localPort === 80 ? [name, `${name}:80`] : [`${name}:${socket.localPort}`],
  );
  const host = headers.host?.toLowerCase() ?? '';
  if (!hosts.includes(host)) {
    throw new ApiError(
      { status: 421, type: 'permission_error', code: 'wrong_host' },
      `This bridge answers to ${hosts.join(', ')} only.`,
    );
  }
  const isForeign = headers.origin !== undefined && headers.origin !== `http://${host}`;
  if (isForeign || headers['sec-fetch-site'] === 'cross-site' || headers['sec-fetch-site'] === 'same-site') {
    throw new ApiError(
      { status: 403, type: 'permission_error', code: 'cross_origin' },
      'This bridge spends money: it takes no requests that web pages of other origins send.',
    );
  }
  if (token !== null && !isSame(bearerOf(headers.authorization), token)) {
    throw new ApiError(
      { status: 401, type: 'authentication_error', code: 'invalid_api_key' },
      'This bridge takes no other API key than the token that it was started with, or has printed as OPENAI_API_KEY. ' +
        'Nothing was bought.',
    );
  }
}

const bearerOf = (authorization = ''): string => /^bearer +(.*)$/i.exec(authorization)?.[1]?.trim() ?? '';

/** Takes the same time wherever they differ. */
const isSame = (given: string, token: string): boolean => timingSafeEqual(digest(given), digest(token));

const digest = (text: string): Buffer => createHash('sha256').update(text).digest();
