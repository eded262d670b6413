import { leaseSeconds } from '../payments/hold-keeper.ts';
import { MAX_STREAM_MS } from '../payments/stream-deadlines.ts';
import { MAX_WAITING_BYTES } from '../speech/audio-memory.ts';
import { type Catalog, CatalogError, loadCatalog } from '../speech/catalog.ts';
import { DEFAULT_UPSTREAM } from '../speech/catalog-upstreams.ts';
import type { ProviderSettings, ServerSettings } from '../speech/open-provider.ts';
import type { SettingsReader } from './settings-reader.ts';

export interface SpeechConfig extends ProviderSettings {
  /** What no setting changes. */
  readonly streaming: StreamingConfig;
}

export interface StreamingConfig {
  /** Longest time of one stream, however much audio flows. */
  readonly totalMs: number;
  /** How long a hold stands without a renewal. */
  readonly leaseSeconds: number;
  /** Audio that may wait for callers before new work is refused. */
  readonly waitingBytes: number;
}

export const DEFAULT_SPEECH_TIMEOUT_MS = 45_000;

/**
 * Undefined where no provider is set.
 * @param catalog whose upstreams are used; undefined when it is faulty
 */
export function readSpeech(reader: SettingsReader, catalog: Catalog | undefined): SpeechConfig | undefined {
  const baseUrl = reader.text('SPEECH_BASE_URL');
  const apiKey = reader.text('SPEECH_API_KEY');
  const timeoutMs = reader.integer('SPEECH_TIMEOUT_MS', 100, 600_000) ?? DEFAULT_SPEECH_TIMEOUT_MS;
  const servers = readServers(reader, catalog);
  const streaming: StreamingConfig = {
    totalMs: MAX_STREAM_MS,
    leaseSeconds: leaseSeconds(timeoutMs),
    waitingBytes: MAX_WAITING_BYTES,
  };
  const rest = { timeoutMs, servers, streaming };
  if (baseUrl === undefined) {
    if (apiKey) {
      reader.fault('SPEECH_BASE_URL', 'is not set, but SPEECH_API_KEY is', 'Set it to the base of the speech API.');
    }
    if (servers.length === 0) return undefined;
    const without =
      catalog?.models.filter((model) => model.upstreams.some(({ name }) => name === DEFAULT_UPSTREAM)) ?? [];
    if (without.length > 0) {
      const ids = without.map(({ id }) => id).join(', ');
      const fix = 'Set it to the base of the speech API, or name other upstreams of these models in CATALOG_FILE.';
      reader.fault('SPEECH_BASE_URL', `is not set, but the catalog wants it for ${ids}`, fix);
    }
    return { baseUrl, apiKey: undefined, ...rest };
  }
  if (baseUrl === 'embedded:') return { baseUrl, apiKey: undefined, ...rest };
  const parsed = reader.httpUrl('SPEECH_BASE_URL', baseUrl, 'https://speech.internal/v1, or embedded:');
  if (parsed && !/\/v1\/?$/.test(parsed.href)) {
    const fix = 'Give the base of the API, such as https://speech.internal/v1.';
    reader.fault('SPEECH_BASE_URL', 'does not end in /v1', fix);
  }
  return { baseUrl: baseUrl.replace(/\/$/, ''), apiKey, ...rest };
}

/** The catalog's upstreams, with the keys that it names the variables of. */
function readServers(reader: SettingsReader, catalog: Catalog | undefined): ServerSettings[] {
  return (catalog?.upstreams ?? []).map(({ name, baseUrl, keyVariable }) => {
    const apiKey = keyVariable === undefined ? undefined : reader.text(keyVariable);
    if (keyVariable !== undefined && apiKey === undefined) {
      const fix = 'Set it to the key of that server, or leave keyVariable out where it takes none.';
      reader.fault(keyVariable, `is not set, but upstream ${name} in CATALOG_FILE takes its key from it`, fix);
    }
    return { name, baseUrl, apiKey, keyVariable };
  });
}

export function readCatalog(reader: SettingsReader): Catalog | undefined {
  try {
    return loadCatalog(reader.text('CATALOG_FILE'));
  } catch (error) {
    if (!(error instanceof CatalogError)) throw error;
    const fix = 'Correct the file, or unset it for the built-in one.';
    return reader.fault('CATALOG_FILE', `can't be used: ${error.message}`, fix);
  }
}
