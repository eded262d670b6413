import assert from 'node:assert/strict';
import type { Test } from 'tap';
import { type TestCheckout, testCheckout } from '../../support/checkout.ts';
import { type Gateway, startGateway } from '../../support/gateway.ts';

export async function shop(t: Test, env: Record<string, string> = {}) {
  const checkout = await testCheckout(t);
  return { checkout, gateway: await startGateway(t, { ...checkout.env, ...env }) };
}

export const form = (fields: Record<string, string>) => ({
  method: 'POST',
  headers: { 'content-type': 'application/x-www-form-urlencoded' },
  body: new URLSearchParams(fields).toString(),
});

/** Opens a checkout, pays it, and tells the path that the buyer returns to. */
export async function buy(
  gateway: Gateway,
  checkout: TestCheckout,
  fields: Record<string, string> = {},
): Promise<string> {
  const opened = await gateway.call('/top-up', form(fields));
  assert.equal(opened.status, 303);
  const back = new URL(await checkout.pay(opened.headers.get('location') ?? ''));
  return `${back.pathname}${back.search}`;
}

export const shownAccount = (page: string): string => /value="([0-9a-f-]{36})" readonly/.exec(page)?.[1] ?? '';

/** The amounts that a launcher offers, the chosen one with a star. */
export const offered = (page: string): string =>
  [...page.matchAll(/<input type="radio" name="amount" [^>]*value="(\w+)"( checked)?>/g)]
    .map(([, value, checked]) => `${value}${checked ? '*' : ''}`)
    .join(' ');

export const links = (page: string): string[] =>
  [...page.matchAll(/<a [^>]*href="([^"]*)"/g)].map(([, href]) => href?.replaceAll('&amp;', '&') ?? '');
