import type { FastifyInstance, FastifyReply } from 'fastify';
import { type Html, html } from '../../http/pages/html.ts';
import { pageContentSecurityPolicy, renderPage } from '../../http/pages/page.ts';
import { toApiError } from './api-error.ts';

/** @param merchantOrigin another origin that forms of the page may redirect to (R19) */
export function withPageHeaders(reply: FastifyReply, merchantOrigin?: string): FastifyReply {
  return reply.headers({
    'content-type': 'text/html; charset=utf-8',
    'content-security-policy': pageContentSecurityPolicy(merchantOrigin ? [merchantOrigin] : []),
    'x-content-type-options': 'nosniff',
    'x-frame-options': 'DENY',
    'referrer-policy': 'no-referrer',
    'cache-control': 'no-store',
  });
}

export const page = (title: string, content: Html): string =>
  renderPage(
    title,
    html`<p class="notice">Sandbox: this checkout takes no real card, and no real money moves.</p>\n${content}`,
  );

export const messagePage = (title: string, message: string): string => page(title, html`<p>${message}</p>`);

/** Shows errors as pages with a link back. */
export function showErrors(app: FastifyInstance, wayBack: string): void {
  app.setErrorHandler((error, _request, reply) => {
    const { status, message } = toApiError(error);
    const content = html`<p>${message}</p>\n<a class="button plain" href="">${wayBack}</a>`;
    return withPageHeaders(reply.code(status)).send(page('The request failed', content));
  });
}

export const join = (fragments: Html[]): Html => fragments.reduce((all, next) => html`${all}${next}`, html``);

export function money(minorUnits: number, currency: string): string {
  const format = new Intl.NumberFormat('en-US', { style: 'currency', currency });
  return format.format(minorUnits / 10 ** (format.resolvedOptions().maximumFractionDigits ?? 2));
}
