import { join } from 'node:path';
import { isInstalled } from '../lib/missing-packages.ts';
import { type Catalog, CatalogError, loadCatalog } from './catalog.ts';
import { DEFAULT_UPSTREAM } from './catalog-upstreams.ts';
import type { SettingsReader } from './settings-reader.ts';
import { parseAudioStoreSetting } from './store-setting.ts';

export interface ProviderSettings {
  readonly baseUrl: string | undefined;
  readonly apiKey: string | undefined;
  readonly timeoutMs: number;
  readonly servers: readonly ServerSettings[];
}

export interface ServerSettings {
  readonly name: string;
  readonly baseUrl: string;
  readonly apiKey: string | undefined;
  readonly keyVariable?: string | undefined;
}

export interface SpeechConfig extends ProviderSettings {
  readonly concurrency: number;
  readonly streaming: { readonly totalMs: number; readonly waitingBytes: number };
}

export const DEFAULT_SPEECH_TIMEOUT_MS = 45_000;
export const MAX_SPEECH_TIMEOUT_MS = 600_000;
const DEFAULT_CONCURRENCY = 256;
const MAX_STREAM_MS = 15 * 60_000;
const MAX_WAITING_BYTES = 256 * 1024 * 1024;

/** Returns undefined without a provider. @param catalog undefined if it is faulty */
export function readSpeech(reader: SettingsReader, catalog: Catalog | undefined): SpeechConfig | undefined {
  const baseUrl = reader.text('SPEECH_BASE_URL');
  const apiKey = reader.headerText('SPEECH_API_KEY');
  const timeoutMs = reader.integer('SPEECH_TIMEOUT_MS', 100, MAX_SPEECH_TIMEOUT_MS) ?? DEFAULT_SPEECH_TIMEOUT_MS;
  const servers = readServers(reader, catalog);
  const streaming = { totalMs: MAX_STREAM_MS, waitingBytes: MAX_WAITING_BYTES };
  const concurrency = reader.integer('SPEECH_CONCURRENCY', 1, 10_000) ?? DEFAULT_CONCURRENCY;
  const rest = { timeoutMs, concurrency, servers, streaming };
  if (baseUrl === undefined) {
    if (apiKey) reader.missing('SPEECH_BASE_URL', 'SPEECH_API_KEY', 'Set it, or unset SPEECH_API_KEY.');
    if (servers.length === 0) return undefined;
    const { models = [] } = catalog ?? {};
    const without = models.filter(({ upstreams }) => upstreams.some(({ name }) => name === DEFAULT_UPSTREAM));
    if (without.length > 0) {
      const ids = without.map(({ id }) => id).join(', ');
      const fix = 'Set it to the base URL of the speech API, or name other upstreams for these models in CATALOG_FILE.';
      reader.fault('SPEECH_BASE_URL', `is not set, but these models in the catalog need it: ${ids}`, fix);
    }
    return { baseUrl, apiKey: undefined, ...rest };
  }
  if (baseUrl === 'embedded:') {
    const fix =
      'Start the included voice with `npx --no -- speechgate voice --port 8090`, and set SPEECH_BASE_URL to http://127.0.0.1:8090/v1.';
    reader.fault('SPEECH_BASE_URL', 'is "embedded:", but the included voice runs as a separate server', fix);
    return { baseUrl, apiKey, ...rest };
  }
  const parsed = reader.httpUrl('SPEECH_BASE_URL', baseUrl, 'https://speech.internal/v1');
  if (parsed && !/\/v1\/?$/.test(parsed.href)) {
    const fix = 'Set it to the base URL of the speech API, such as https://speech.internal/v1.';
    reader.fault('SPEECH_BASE_URL', 'does not end in /v1', fix);
  }
  return { baseUrl: baseUrl.replace(/\/$/, ''), apiKey, ...rest };
}

function readServers(reader: SettingsReader, catalog: Catalog | undefined): ServerSettings[] {
  return (catalog?.upstreams ?? []).map(({ name, baseUrl, keyVariable }) => {
    if (keyVariable !== undefined) reader.readSecretFile(keyVariable);
    const apiKey = keyVariable === undefined ? undefined : reader.headerText(keyVariable);
    if (keyVariable !== undefined && reader.text(keyVariable) === undefined) {
      const fix = 'Set it to the API key of that upstream, or remove keyVariable if the upstream needs no key.';
      reader.fault(keyVariable, `is not set, but CATALOG_FILE names it as the key of upstream ${name}`, fix);
    }
    return { name, baseUrl, apiKey, keyVariable };
  });
}

export function readCatalog(reader: SettingsReader): Catalog | undefined {
  try {
    return loadCatalog(reader.text('CATALOG_FILE'));
  } catch (error) {
    if (!(error instanceof CatalogError)) throw error;
    const fix = 'Correct the path or the file, or unset CATALOG_FILE to use the built-in catalog.';
    return reader.fault('CATALOG_FILE', `can't be used: ${error.message}`, fix);
  }
}

/** In a folder. A bucket takes a fee for each object, so there nothing is kept unless the operator says so. */
const PREPAID_MIB = 256;

export function readJobs(reader: SettingsReader, dataDir: string) {
  const named = reader.text('AUDIO_STORE');
  const audioStore = named ?? `file:${join(dataDir, 'audio')}`;
  const store = parseAudioStoreSetting(audioStore);
  if (!store) {
    reader.fault('AUDIO_STORE', 'is not the address of a store', 'Set it to file:PATH or s3://bucket/prefix.');
  } else if (store.kind === 's3' && !isInstalled('@aws-sdk/client-s3')) {
    // Without --save-prod, npm leaves it a development dependency, which --omit=dev skips.
    const fix = 'Run `npm install @aws-sdk/client-s3@3 --save-prod --omit=dev --omit=optional`.';
    reader.fault('AUDIO_STORE', 'names a bucket, but @aws-sdk/client-s3 is not installed', fix);
  }
  const isFolder = audioStore.startsWith('file:');
  const prepaidMiB = reader.integer('PREPAID_AUDIO_MIB_PER_MINUTE', 0, 1_000_000) ?? (isFolder ? PREPAID_MIB : 0);
  return {
    concurrency: reader.integer('JOB_CONCURRENCY', 1, 100) ?? 2,
    /** Of prepaid responses, how much is kept of those of each minute. */
    prepaidAudioBytes: prepaidMiB * 1024 * 1024,
    audioRetentionSeconds: reader.integer('AUDIO_RETENTION_SECONDS', 1, 315_360_000) ?? 604_800,
    audioStore,
    /** The setting that names it, for people. */
    audioSetting: named === undefined ? 'DATA_DIR' : 'AUDIO_STORE',
    /** The first signs audio links, all verify them. Without any, links are unsigned. */
    signingSecrets: reader.secrets('JOB_SIGNING_SECRET'),
  };
}
