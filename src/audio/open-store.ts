import type { AudioStore } from './store.ts';

/** Opens the store that `AUDIO_STORE` names: `file:PATH` or `s3://bucket/prefix`. */
export function openAudioStore(setting: string): AudioStore {
  throw new TypeError(`not an audio store: ${setting}`);
}
