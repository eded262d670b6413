import { request } from 'node:http';
import type { Test } from 'tap';
import { serve } from './listening.ts';

export interface HidingProxy {
  readonly url: string;
  target: string;
  /** Ends the body of the next answer with audio after so many bytes. */
  cutNextAt: number | undefined;
}

/** A proxy as some are: an answer that is cut off ends in an orderly way, without a length of its own. */
export async function startHidingProxy(t: Test): Promise<HidingProxy> {
  const url = await serve(t, (asked, answer) => {
    const { method, url: path = '', headers } = asked;
    const onward = request(proxy.target + path, { method, headers } as object, (incoming) => {
      const { 'content-length': _length, 'transfer-encoding': _coding, connection: _hop, ...kept } = incoming.headers;
      answer.writeHead(incoming.statusCode ?? 502, kept).flushHeaders();
      const isAudio = kept['content-type']?.startsWith('audio/');
      let left = (isAudio && proxy.cutNextAt) || Number.POSITIVE_INFINITY;
      if (isAudio) proxy.cutNextAt = undefined;
      incoming.on('data', (chunk) => {
        answer.write(chunk.subarray(0, left));
        left -= Math.min(left, chunk.length);
      });
      incoming.on('error', () => {});
      incoming.once('close', () => answer.end());
    });
    onward.on('error', () => answer.headersSent || answer.destroy());
    asked.pipe(onward);
  });
  const proxy: HidingProxy = { url, target: url, cutNextAt: undefined };
  return proxy;
}
