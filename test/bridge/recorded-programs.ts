/** What programs send to an OpenAI speech service, read from their public source. */
export interface RecordedRequest {
  readonly method: 'GET' | 'POST';
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: Readonly<Record<string, unknown>>;
}

export interface RecordedProgram {
  readonly program: string;
  /** Repository, commit and file in which the request is made. */
  readonly source: string;
  readonly requests: readonly RecordedRequest[];
  /** The audio that it expects. */
  readonly codec: 'mp3' | 'pcm_s16le';
}

const INPUT = 'Hello world';

export const PROGRAMS: readonly RecordedProgram[] = [
  {
    program: 'Open WebUI',
    source: 'open-webui/open-webui@01fb3e46d3e5865b34b7d9ee2fcabbe380bbe52a backend/open_webui/routers/audio.py',
    // Its browser part names input and voice; the server adds the model, and whose request it is where that is set.
    requests: [
      { method: 'GET', path: '/v1/audio/models', headers: { 'user-agent': 'python-requests/2.32.3', accept: '*/*' } },
      { method: 'GET', path: '/v1/audio/voices', headers: { 'user-agent': 'python-requests/2.32.3', accept: '*/*' } },
      {
        method: 'POST',
        path: '/v1/audio/speech',
        headers: {
          'content-type': 'application/json',
          authorization: 'Bearer sk-anything',
          'x-openwebui-user-name': 'Ada',
          'x-openwebui-user-id': '7',
          'x-openwebui-user-email': 'ada@example.com',
          'x-openwebui-user-role': 'user',
        },
        body: { input: INPUT, voice: 'alloy', model: 'tts-1' },
      },
    ],
    codec: 'mp3',
  },
  {
    program: 'SillyTavern, its OpenAI-compatible speech',
    source: 'SillyTavern/SillyTavern@00a72b5a71195ec03bab5a42c03655f6ebe672e3 src/endpoints/openai.js',
    // Without a key of its own it sends none after the word Bearer.
    requests: [
      {
        method: 'POST',
        path: '/v1/audio/speech',
        headers: { 'content-type': 'application/json', authorization: 'Bearer ', 'user-agent': 'node-fetch' },
        body: { input: INPUT, response_format: 'mp3', voice: 'shimmer', speed: 1, model: 'tts-1' },
      },
    ],
    codec: 'mp3',
  },
  {
    program: "Home Assistant's OpenAI TTS integration",
    source:
      'sfortis/openai_tts@0460cd2fff52ffcf8fc436cecc1f512aa1117381 custom_components/openai_tts/openaitts_engine.py',
    requests: [
      {
        method: 'POST',
        path: '/v1/audio/speech',
        headers: {
          'content-type': 'application/json',
          'user-agent': 'python-requests/2.32.3',
          accept: '*/*',
          'accept-encoding': 'gzip, deflate',
        },
        body: { model: 'tts-1', input: INPUT, voice: 'onyx', response_format: 'wav', speed: 1 },
      },
    ],
    codec: 'pcm_s16le',
  },
  {
    program: 'LibreChat, with speech of OpenAI and of LocalAI',
    source:
      'danny-avila/LibreChat@00b3bc32f0f5dd65befa49a0773dae7d26d8e587 api/server/services/Files/Audio/TTSService.js',
    // For LocalAI it gives the voice as the model, and no voice.
    requests: [
      {
        method: 'POST',
        path: '/v1/audio/speech',
        headers: {
          'content-type': 'application/json',
          accept: 'application/json, text/plain, */*',
          authorization: 'Bearer sk-anything',
          'user-agent': 'axios/1.8.2',
        },
        body: { input: INPUT, model: 'tts-1', voice: 'nova' },
      },
      {
        method: 'POST',
        path: '/v1/audio/speech',
        headers: {
          'content-type': 'application/json',
          accept: 'application/json, text/plain, */*',
          'user-agent': 'axios/1.8.2',
        },
        body: { input: INPUT, model: 'alloy', backend: 'piper' },
      },
    ],
    codec: 'mp3',
  },
];
