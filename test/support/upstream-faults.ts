import type { Mode } from './stub-upstream.ts';
import * as stub from './stub-upstream.ts';

/** Sends half of the header of an answer, and then nothing more. */
const hangInHeader: Mode = (_request, response) => {
  response.socket?.write('HTTP/1.1 200 OK\r\ncontent-type: audio/');
};

/** Every way in which an upstream that is there fails before its first audio, and through which another one may help. */
export const FAULTS_BEFORE_AUDIO: Readonly<Record<string, Mode>> = {
  'a reset': stub.resetBeforeHeaders(),
  'a close without an answer': stub.closeBeforeHeaders(),
  'status 500': stub.openAiError(500),
  'status 400': stub.openAiError(400),
  'status 413': stub.openAiError(413),
  'status 422': stub.fastApiError(),
  'status 402': stub.openAiError(402),
  'status 401': stub.openAiError(401),
  'status 404': stub.openAiError(404),
  'status 429': stub.tooManyRequests('1'),
  'status 503': stub.openAiError(503),
  'a redirect': stub.redirect('https://elsewhere.example/'),
  'no audio': stub.empty(),
  'no audio, chunked': stub.empty({ framing: 'chunked' }),
  HTML: stub.html(),
  JSON: stub.json({ audio: 'none' }),
  'bytes that are no audio': stub.garbage(),
  'half a header, and its end': stub.raw('HTTP/1.1 200 OK\r\ncontent-type: audio/'),
  'something that is not HTTP': stub.raw('220 smtp.example ESMTP\r\n'),
  silence: stub.hangBeforeHeaders(),
  'half a header, and silence': hangInHeader,
  'a header, and silence': stub.hangInBody(Buffer.alloc(0)),
};
