import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import type { Test } from 'tap';
import { programCommand } from './child.ts';
import { listensFor } from './listening.ts';

/** Has a program that is started with these settings send traces. */
export const TRACED = { NODE_OPTIONS: `--import=${registerUrl()}` };

function registerUrl(): string {
  const register = programCommand('src/observability/register.ts').at(-1) as string;
  return pathToFileURL(resolve(register)).href;
}

/** A span as OTLP writes it in JSON. */
export interface Span {
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId?: string;
  readonly name: string;
  /** 1 internal, 2 server, 3 client. */
  readonly kind: number;
  readonly attributes: readonly KeyValue[];
  readonly links: readonly { readonly traceId: string; readonly spanId: string }[];
  readonly status: { readonly code?: number; readonly message?: string };
}

interface KeyValue {
  readonly key: string;
  readonly value: { readonly stringValue?: string; readonly intValue?: number };
}

interface Received {
  readonly path: string;
  readonly headers: NodeJS.Dict<string | string[]>;
  readonly body: Buffer;
}

export interface Collector {
  readonly url: string;
  readonly received: readonly Received[];
  /** All spans that came as JSON. */
  spans(): Span[];
  /** Of the process that sent the last spans. */
  resource(): Record<string, unknown>;
}

export const attributesOf = ({ attributes }: { readonly attributes: readonly KeyValue[] }): Record<string, unknown> =>
  Object.fromEntries(attributes.map(({ key, value }) => [key, value.stringValue ?? value.intValue]));

/** Takes OTLP over HTTP as a collector does. */
export async function startCollector(t: Test): Promise<Collector> {
  const received: Received[] = [];
  const server = createServer(async (incoming, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of incoming) chunks.push(chunk);
    received.push({ path: incoming.url ?? '', headers: incoming.headers, body: Buffer.concat(chunks) });
    response.setHeader('content-type', incoming.headers['content-type'] ?? '');
    response.end(incoming.headers['content-type'] === 'application/json' ? '{}' : undefined);
  });
  server.listen(0, '127.0.0.1');
  await listensFor(t, server);
  const json = (path: string) =>
    received
      .filter((request) => request.path === path && request.headers['content-type'] === 'application/json')
      .map(({ body }) => JSON.parse(body.toString()));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    received,
    spans: () =>
      json('/v1/traces').flatMap(({ resourceSpans }) =>
        resourceSpans.flatMap(({ scopeSpans }: { scopeSpans: { spans: Span[] }[] }) =>
          scopeSpans.flatMap(({ spans }) => spans),
        ),
      ),
    resource: () => attributesOf(json('/v1/traces').at(-1).resourceSpans[0].resource),
  };
}
