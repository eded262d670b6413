import assert from 'node:assert/strict';
import { test } from 'tap';
import { type Call, startGateway } from '../support/gateway.ts';

test('what the edge reads of a request', async (t) => {
  const { call } = await startGateway(t);

  await t.test('bodies', async (t) => {
    const post = (headers: Record<string, string>, body: string | Buffer): Call => ({ method: 'POST', headers, body });
    const json = { 'content-type': 'application/json' };
    const plain = { 'content-type': 'text/plain' };
    const big = 'a'.repeat(65_537);
    const cases: [string, Call, number, string][] = [
      ['no content type', post({}, '{"text":"a"}'), 415, 'UNSUPPORTED_CONTENT_TYPE'],
      ['another content type', post({ 'content-type': 'text/html' }, 'a'), 415, 'UNSUPPORTED_CONTENT_TYPE'],
      ['a content type that is none', post({ 'content-type': ';;' }, 'a'), 415, 'UNSUPPORTED_CONTENT_TYPE'],
      [
        'R51: another charset',
        post({ 'content-type': 'text/plain; charset=latin1' }, 'a'),
        415,
        'UNSUPPORTED_CONTENT_TYPE',
      ],
      ['a compressed body', post({ ...json, 'content-encoding': 'gzip' }, 'a'), 415, 'UNSUPPORTED_CONTENT_TYPE'],
      [
        'R7: the type comes before the size',
        post({ 'content-type': 'text/html' }, big),
        415,
        'UNSUPPORTED_CONTENT_TYPE',
      ],
      ['R4: over 64 KiB', post(plain, big), 413, 'REQUEST_TOO_LARGE'],
      ['R7: the size comes before the JSON', post(json, big), 413, 'REQUEST_TOO_LARGE'],
      ['no JSON', post(json, '{"text":'), 400, 'INVALID_JSON'],
      ['an empty body', post(json, ''), 400, 'INVALID_JSON'],
      ['invalid UTF-8 in JSON', post(json, Buffer.from([0x22, 0xff, 0x22])), 400, 'INVALID_JSON'],
      ['R2: invalid UTF-8 in text', post(plain, Buffer.from([0x61, 0xff])), 400, 'INVALID_REQUEST'],
      ['an array', post(json, '[]'), 400, 'INVALID_REQUEST'],
      ['null', post(json, 'null'), 400, 'INVALID_REQUEST'],
      ['no text', post(json, '{}'), 400, 'INVALID_REQUEST'],
      ['text of another type', post(json, '{"text":1}'), 400, 'INVALID_REQUEST'],
      ['R2: only white space', post(json, '{"text":" \\n\\u00a0 "}'), 400, 'INVALID_REQUEST'],
      ['R2: a lone surrogate', post(json, '{"text":"a\\ud800"}'), 400, 'INVALID_REQUEST'],
      ['R2: U+0000', post(json, '{"text":"a\\u0000b"}'), 400, 'INVALID_REQUEST'],
      ['R8: speed of another type', post(json, '{"text":"a","speed":"1"}'), 400, 'INVALID_SPEED'],
      ['R8: speed out of range', post(json, '{"text":"a","speed":2.01}'), 400, 'INVALID_SPEED'],
      ['R8: an unknown model', post(json, '{"text":"a","model":"tts-1"}'), 400, 'UNKNOWN_TTS_MODEL'],
      ['R8: model of another type', post(json, '{"text":"a","model":7}'), 400, 'UNKNOWN_TTS_MODEL'],
      ['R8: a bare voice slug', post(json, '{"text":"a","voice":"alloy"}'), 400, 'INVALID_VOICE'],
      ['R8: text over the cap', post(json, JSON.stringify({ text: 'a'.repeat(4097) })), 413, 'TEXT_TOO_LONG'],
      [
        'R7: the model comes before the cap',
        post(json, JSON.stringify({ text: 'a'.repeat(4097), model: 'x' })),
        400,
        'UNKNOWN_TTS_MODEL',
      ],
      [
        'R7: the voice comes before the speed',
        post(json, '{"text":"a","voice":"x_y","speed":1.5}'),
        400,
        'INVALID_VOICE',
      ],
      [
        'R36: a header of another flow',
        post({ ...json, 'payment-signature': 'x' }, '{"text":"a"}'),
        400,
        'INVALID_REQUEST',
      ],
      [
        'an idempotency key over 512 characters',
        post({ ...json, 'idempotency-key': 'k'.repeat(513) }, '{"text":"a"}'),
        400,
        'INVALID_REQUEST',
      ],
      [
        'an account header over 128 characters',
        post({ ...json, 'x-credit-account': 'k'.repeat(129) }, '{"text":"a"}'),
        400,
        'INVALID_REQUEST',
      ],
    ];
    for (const [name, request, status, code] of cases) {
      await t.test(name, async () => {
        const reply = await call('/tts', request);
        assert.equal(reply.json.error?.code, code, reply.text);
        assert.equal(reply.status, status);
      });
    }
    await t.test(
      'R7: a wrong content type is 415 also without a body; neither is 400 where a body is required',
      async () => {
        for (const path of ['/tts', '/x402/tts', '/x402/tts/quote', '/x402/deposit', '/feedback', '/top-up']) {
          for (const length of [{}, { 'content-length': '0' }]) {
            const wrong = await call(path, { method: 'POST', headers: { 'content-type': 'text/html', ...length } });
            assert.deepEqual([wrong.status, wrong.json.error.code], [415, 'UNSUPPORTED_CONTENT_TYPE'], path);
            if (path === '/top-up') continue;
            const none = await call(path, { method: 'POST', headers: length });
            assert.deepEqual([none.status, none.json.error.code], [400, 'INVALID_REQUEST'], path);
          }
        }
      },
    );
    await t.test('R51: unknown members and UTF-8 in any spelling are fine', async () => {
      const reply = await call(
        '/tts',
        post({ 'content-type': 'Application/JSON; Charset="UTF-8"' }, '{"text":"a","__proto__":{},"x":1}'),
      );
      assert.equal(reply.status, 402);
    });
    await t.test('R2: parameters in the query of POST count only with text/plain', async () => {
      assert.equal((await call('/tts?speed=9&model=x', post(json, '{"text":"a"}'))).status, 402);
      assert.equal((await call('/tts?speed=9', post(plain, 'a'))).json.error.code, 'INVALID_SPEED');
      assert.equal((await call('/tts?model=x', post(plain, 'a'))).json.error.code, 'UNKNOWN_TTS_MODEL');
      assert.equal((await call('/tts?speed=1.5&voice=provider-a_nova', post(plain, 'a'))).status, 402);
    });
  });

  await t.test('GET /tts', async (t) => {
    const cases: [string, string, number, string?][] = [
      ['no text', '/tts', 400, 'INVALID_REQUEST'],
      ['R4: 1501 characters', `/tts?text=${'a'.repeat(1501)}`, 400, 'INVALID_REQUEST'],
      ['R1: 1500 characters after trimming', `/tts?text=+${'a'.repeat(1500)}%20`, 402],
      ['R5: 1500 CJK characters', `/tts?text=${'%E8%AA%9E'.repeat(1500)}`, 402],
      ['R1: an emoji counts two', `/tts?text=${'%F0%9F%98%80'.repeat(751)}`, 400, 'INVALID_REQUEST'],
      ['R49: a parameter given twice', '/tts?text=a&text=b', 400, 'INVALID_REQUEST'],
      ['R49: also one with a code of its own', '/tts?text=a&speed=1&speed=1', 400, 'INVALID_REQUEST'],
      ['R51: an empty model', '/tts?text=a&model=', 400, 'UNKNOWN_TTS_MODEL'],
      ['R51: an exponent', '/tts?text=a&speed=1e0', 400, 'INVALID_SPEED'],
      ['R51: a sign', '/tts?text=a&speed=%2B1', 400, 'INVALID_SPEED'],
      ['R51: hexadecimal', '/tts?text=a&speed=0x1', 400, 'INVALID_SPEED'],
      ['R49: also one that may hold any text', '/tts?text=a&async=0&async=0', 400, 'INVALID_REQUEST'],
    ];
    for (const [name, path, status, code] of cases) {
      await t.test(name, async () => {
        const reply = await call(path);
        assert.equal(reply.status, status, reply.text);
        assert.equal(reply.json.error.code, code ?? 'PAYMENT_REQUIRED');
      });
    }
    await t.test('R4: a text that is too long for GET is told the limit and the way out', async () => {
      const { error } = (await call(`/tts?text=${'a'.repeat(1501)}`)).json;
      assert.equal(error.details.field, 'text');
      assert.equal(error.details.maxLength, 1500);
      assert.match(error.message, /POST/);
    });
  });
});
