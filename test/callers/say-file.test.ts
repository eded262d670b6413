/** Files that are spoken part by part: each part is paid once, whatever interrupts the command. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { crc32 } from 'node:zlib';
import { type Test, t, test } from 'tap';
import { chapterTag } from '../../src/callers/cli/book-files.ts';
import { secondsOf } from '../../src/callers/mcp/speak-tool.ts';
import { wholeFrames } from '../../src/speech/mpeg-frame.ts';
import { splitText } from '../../src/speech/split-text.ts';
import { prepaidCallerOf } from '../support/caller.ts';
import { callerCommand, startCallerCommand } from '../support/caller-command.ts';
import { startChild } from '../support/child.ts';
import { listening } from '../support/client.ts';
import { startGateway } from '../support/gateway.ts';
import { serve } from '../support/listening.ts';
import { startPrepaidGateway } from '../support/prepaid.ts';
import { probe, withoutProbe } from '../support/probed-audio.ts';
import { silentMp3 } from '../support/silent-audio.ts';
import { body, ControlledStream, mp3, wav } from '../support/stub-upstream.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';
import { toneMp3 } from '../support/tone.ts';

/** A ZIP archive whose files are stored as they are. @param isEncrypted each file claims to be, after a header of 12 bytes */
function zipOf(files: Readonly<Record<string, string>>, isEncrypted = false): Buffer {
  const locals: Buffer[] = [];
  const central: Buffer[] = [];
  let offset = 0;
  for (const [name, content] of Object.entries(files)) {
    const [path, data] = [Buffer.from(name), Buffer.from(content)];
    const stored = isEncrypted ? Buffer.concat([Buffer.alloc(12), data]) : data;
    const shared = Buffer.alloc(26);
    shared.writeUInt16LE(20, 0);
    shared.writeUInt16LE((isEncrypted ? 1 : 0) | 0x800, 2);
    shared.writeUInt32LE(crc32(data), 10);
    shared.writeUInt32LE(stored.length, 14);
    shared.writeUInt32LE(data.length, 18);
    shared.writeUInt16LE(path.length, 22);
    const local = Buffer.concat([Buffer.from('PK\x03\x04'), shared, path, stored]);
    const entry = Buffer.alloc(14);
    entry.writeUInt32LE(offset, 10);
    central.push(Buffer.concat([Buffer.from('PK\x01\x02\x14\x00'), shared, entry, path]));
    locals.push(local);
    offset += local.length;
  }
  const directory = Buffer.concat(central);
  const end = Buffer.alloc(18);
  end.writeUInt16LE(central.length, 4);
  end.writeUInt16LE(central.length, 6);
  end.writeUInt32LE(directory.length, 8);
  end.writeUInt32LE(offset, 12);
  return Buffer.concat([...locals, directory, Buffer.from('PK\x05\x06'), end]);
}

const SENTENCE = 'This sentence is one of very many in a long book. ';
const BOOK = `# A book\n\n${SENTENCE.repeat(100)}`;
const split = splitText(`A book.\n${SENTENCE.repeat(100)}`.trim(), 2_000);
const PARTS = split.outcome === 'split' ? split.parts.map((part) => part.trim()) : [];
const PRICE = BigInt(PARTS.reduce((sum, part) => sum + 18 * part.length, 0));

const gateway = await startPrepaidGateway(t, await listening(), { worker: true });
const { upstream } = gateway;

const byPrepaid = async (t: Test) => {
  Object.assign(upstream, { mode: mp3() }).requests.length = 0;
  return prepaidCallerOf(t, gateway, 1_000_000n);
};

const byCard = async (t: Test) => {
  Object.assign(upstream, { mode: mp3() }).requests.length = 0;
  const account = await gateway.fund(100);
  const env: Readonly<Record<string, string>> = {
    SPEECHGATE_CONFIG_DIR: await temporaryFolder(t),
    SPEECHGATE_URL: gateway.config.baseUrl,
    SPEECHGATE_ACCOUNT: account,
    SPEECHGATE_PAY: 'card',
  };
  return { env, balance: () => gateway.balance(account) };
};

async function bookIn(t: Test, text: string | Buffer = BOOK, name = 'book.md') {
  const folder = await temporaryFolder(t);
  const file = join(folder, name);
  await writeFile(file, text);
  const out = join(folder, 'book.mp3');
  return { folder, out, say: ['say', file, '--out', out] };
}

const spoken = () => upstream.requests.map(({ body }) => body?.input);

test('a Markdown file becomes one MP3, spoken without its markup', async (t) => {
  const { env, balance } = await byPrepaid(t);
  const { folder, out, say } = await bookIn(t);
  const shown = await callerCommand(env, ...say, '--dry-run');
  t.ok(shown.out.startsWith('A book.\nThis sentence'), shown.output);
  const before = await balance();
  const { code, err, out: line } = await callerCommand(env, ...say);
  t.equal(code, 0, err);
  t.match(
    err,
    new RegExp(`^The text has ${PARTS.length} parts\\. Not bought yet: ${PARTS.length}, for 0\\.0\\d+ USD\\.$`, 'm'),
  );
  t.match(line, new RegExp(`book\\.mp3: ${PARTS.length} parts, \\d+ bytes, 0\\.0\\d+ USD paid now`));
  t.strictSame(spoken(), PARTS);
  t.equal(await balance(), before - PRICE);
  t.ok(Math.abs((secondsOf(await readFile(out), 'audio/mpeg') ?? 0) - PARTS.length) < 0.1 * PARTS.length);
  t.strictSame((await readdir(folder)).sort(), ['book.md', 'book.mp3']);
  t.strictSame(await readdir(join(env.SPEECHGATE_CONFIG_DIR ?? '', 'pending')).catch(() => []), []);
});

test('a text file is spoken as it is, also with --json', async (t) => {
  const { env } = await byCard(t);
  const { out, say } = await bookIn(t, '\ufeff# One * two', 'a.txt');
  const told = await callerCommand(env, ...say, '--json');
  t.equal(told.code, 0, told.err);
  const { length: bytes } = await readFile(out);
  t.strictSame(JSON.parse(told.out), { file: out, parts: 1, bytes, chargedMicroUsd: 18 * '# One * two'.length });
  t.strictSame(spoken(), ['# One * two']);
});

for (const [flow, start] of Object.entries({ prepaid: byPrepaid, card: byCard })) {
  test(`${flow}: after Ctrl-C the same command goes on and pays for each part once`, async (t) => {
    const { env, balance } = await start(t);
    const { folder, out, say } = await bookIn(t);
    const before = await balance();
    const second = new ControlledStream();
    let asked = 0;
    upstream.mode = (request, response) => {
      asked += 1;
      (asked === 2 ? second.mode : mp3())(request, response);
    };
    const command = startCallerCommand(env, say);
    await second.opened;
    await command.printed(/^Part 2 of 3, about \d+ s left, 0\.0\d+ USD paid …$/m);
    const interrupted = await command.stop('SIGINT');
    t.equal(interrupted.code, 5, interrupted.output);
    t.match(interrupted.err, /^Interrupted: Bought: 1 of 3 parts, for 0\.0\d+ USD in this run\. To continue, run /m);
    t.strictSame((await readdir(folder)).sort(), ['book.md', 'book.mp3.parts']);
    await second.write(silentMp3(1000));
    second.end();
    const { code, err } = await callerCommand(env, ...say);
    t.equal(code, 0, err);
    t.match(err, /^The text has 3 parts\. Not bought yet: 2,/m);
    t.equal(await balance(), before - PRICE);
    t.strictSame(spoken(), PARTS, 'each is spoken once');
    t.ok(Math.abs((secondsOf(await readFile(out), 'audio/mpeg') ?? 0) - 3) < 0.3);
    t.strictSame((await readdir(folder)).sort(), ['book.md', 'book.mp3']);
  });
}

test('after a chapter was put before those that are bought, they are not paid again', async (t) => {
  const { env } = await byPrepaid(t);
  const { folder, say } = await bookIn(t, '# One\n\nThe first.\n\n# Two\n\nThe second.');
  const second = new ControlledStream();
  upstream.mode = (request, response) => (upstream.requests.length === 2 ? second.mode : mp3())(request, response);
  const command = startCallerCommand(env, say);
  await second.opened;
  await command.stop('SIGINT');
  await second.write(silentMp3(1000));
  second.end();
  const before = spoken();
  await writeFile(join(folder, 'book.md'), '# New\n\nIn front.\n\n# One\n\nThe first.\n\n# Two\n\nThe second.');
  const { code, err } = await callerCommand(env, ...say);
  t.equal(code, 0, err);
  t.equal(before.length, 2);
  t.strictSame(spoken(), [...before, 'New.\nIn front.']);
});

test('after kill -9 the same command goes on and pays for each part once', async (t) => {
  const { env, balance } = await byPrepaid(t);
  const { folder, say } = await bookIn(t);
  const before = await balance();
  const first = new ControlledStream();
  upstream.mode = first.mode;
  const command = startChild(t, 'src/speechgate.ts', { ...env }, say);
  await first.opened;
  await command.stop('SIGKILL');
  await first.write(silentMp3(1000));
  first.end();
  upstream.mode = mp3();
  const { code, err } = await callerCommand(env, ...say);
  t.equal(code, 0, err);
  t.equal(await balance(), before - PRICE);
  t.strictSame(spoken(), PARTS);
  t.strictSame((await readdir(folder)).sort(), ['book.md', 'book.mp3']);
});

const CONTAINER = 'META-INF/container.xml';
const EPUB: Readonly<Record<string, string>> = {
  mimetype: 'application/epub+zip',
  [CONTAINER]: '<container><rootfiles><rootfile full-path="OPS/book.opf"/></rootfiles></container>',
  'OPS/book.opf': `<opf:package xmlns:opf="http://www.idpf.org/2007/opf"><opf:manifest>
    <opf:item id="two" href="chapter%202.xhtml"/><opf:item id="one" href="one.xhtml"/>
    <opf:item id="toc" href="toc.xhtml" properties="nav"/><opf:item id="notes" href="notes.xhtml"/>
    </opf:manifest><opf:spine><opf:itemref idref="toc"/><opf:itemref idref="one"/><opf:itemref idref="two"/>
    <opf:itemref idref="notes" linear="no"/></opf:spine></opf:package>`,
  'OPS/one.xhtml': '<html><head><title/></head><body><h1>One</h1><p>First &amp; <i>last</i>.</p></body></html>',
  'OPS/chapter 2.xhtml': '<html><body><h1>Two</h1><p>The end.</p></body></html>',
  'OPS/toc.xhtml': '<html><body>Contents</body></html>',
  'OPS/notes.xhtml': '<html><body>Notes</body></html>',
};
const encryptedBy = (algorithm: string) => ({
  ...EPUB,
  'META-INF/encryption.xml': `<encryption><enc:EncryptionMethod Algorithm="${algorithm}"/></encryption>`,
});

test('an EPUB is spoken chapter by chapter, in the order of its spine', async (t) => {
  const { env } = await byCard(t);
  for (const book of [EPUB, encryptedBy('http://www.idpf.org/2008/embedding')]) {
    const { say } = await bookIn(t, zipOf(book), 'book.epub');
    const { code, err } = await callerCommand(env, ...say);
    t.equal(code, 0, err);
  }
  t.strictSame([...new Set(spoken())], ['One.\nFirst & last.', 'Two.\nThe end.']);
});

const CONTENTS = (entries: readonly (readonly [title: string, address: string])[]) =>
  `<html xmlns:epub="http://www.idpf.org/2007/ops"><nav epub:type="toc"><h1>Contents</h1><ol><li><a href="one.xhtml">Book</a>
   <ol>${entries.map(([title, address]) => `<li><a href="${address}"><b>${title}</b></a></li>`).join('')}</ol></li></ol></nav>
   <nav epub:type="landmarks"><ol><li><a href="one.xhtml">Cover</a></li></ol></nav></html>`;
const NCX = (entries: readonly (readonly [title: string, address: string])[]) =>
  `<ncx:ncx xmlns:ncx="http://www.daisy.org/z3986/2005/ncx/"><ncx:navMap>${entries
    .map(
      ([title, src]) =>
        `<ncx:navPoint><ncx:navLabel><ncx:text>${title}</ncx:text></ncx:navLabel><ncx:content src="${src}"/></ncx:navPoint>`,
    )
    .join('')}</ncx:navMap><ncx:pageList><ncx:pageTarget><ncx:navLabel><ncx:text>7</ncx:text></ncx:navLabel>
    <ncx:content src="one.xhtml"/></ncx:pageTarget></ncx:pageList></ncx:ncx>`;
const ENTRIES = [
  ['The first', 'one.xhtml#a'],
  ['The second &amp; last', 'chapter%202.xhtml'],
] as const;
const PAGES = {
  'OPS/one.xhtml': '<html><body><p>By me.</p><p><a id="a"/>First.</p><h1>More</h1></body></html>',
  'OPS/chapter 2.xhtml': '<html><body><p>The end.</p></body></html>',
};

for (const [version, book] of [
  ['EPUB 3', { ...EPUB, ...PAGES, 'OPS/toc.xhtml': CONTENTS(ENTRIES) }],
  [
    'EPUB 2',
    {
      ...EPUB,
      ...PAGES,
      'OPS/book.opf': (EPUB['OPS/book.opf'] as string)
        .replace('properties="nav"', 'media-type="application/x-dtbncx+xml"')
        .replace('<opf:itemref idref="toc"/>', ''),
      'OPS/toc.xhtml': NCX(ENTRIES),
    },
  ],
] as const) {
  test(`the chapters of an ${version} are those of its table of contents`, async (t) => {
    const { env } = await byCard(t);
    const { say } = await bookIn(t, zipOf(book), 'book.epub');
    const { code, out, err } = await callerCommand(env, ...say, '--dry-run', '--json');
    t.equal(code, 0, err);
    const { text, chapters } = JSON.parse(out);
    t.equal(text, 'By me.\nFirst.\nMore.\nThe end.');
    t.strictSame(chapters, [version === 'EPUB 3' ? 'Book' : 'By me.', 'The first', 'The second & last']);
  });
}

const run = promisify(execFile);
const CHAPTERED = `# A book\n\nBy me.\n\n${['One', 'Zwölf', 'Three'].map((title) => `## ${title}\n\n${SENTENCE.repeat(50)}\n\n`).join('')}`;

/** Whatever is asked is spoken as thirty characters a second. */
async function readAloud(): Promise<void> {
  const tone = await toneMp3(440, 24_000, 75);
  const { offsets } = wholeFrames(tone);
  upstream.mode = (request, response) => {
    const frames = Math.ceil((String(request.body?.input).length / 30) * (24_000 / 576));
    body(tone.subarray(0, offsets[frames]))(request, response);
  };
}

test('an MP3 of several chapters has their titles and times in a tag, and plays', { skip: withoutProbe }, async (t) => {
  const { env } = await byCard(t);
  await readAloud();
  const { folder, out, say } = await bookIn(t, CHAPTERED);
  t.match((await callerCommand(env, ...say, '--dry-run')).out, /^4 chapters: A book, One, Zwölf, Three$/m);
  const told = await callerCommand(env, ...say, '--captions');
  t.equal(told.code, 0, told.err);
  const { stdout, stderr } = await run('ffprobe', ['-v', 'warning', '-show_chapters', '-of', 'json', out]);
  t.equal(stderr, '');
  const chapters: { start_time: string; end_time: string; tags: { title: string } }[] = JSON.parse(stdout).chapters;
  const shown = chapters.map(({ tags }) => tags.title);
  t.strictSame(shown, ['A book', 'One', 'Zwölf', 'Three']);
  const { seconds } = await probe(await readFile(out), 'mp3');
  chapters.forEach(({ start_time }, at) => {
    assert.equal(start_time, at === 0 ? '0.000000' : chapters[at - 1]?.end_time);
  });
  t.ok(Math.abs(Number(chapters.at(-1)?.end_time) - seconds) < 0.1, `${chapters.at(-1)?.end_time} of ${seconds}`);
  const captions = await readFile(join(folder, 'book.vtt'), 'utf8');
  t.match(captions, /^WEBVTT\n\n00:00:00\.000 --> [\d:.]+\nA book\.\n/);
  const one = Number(chapters[1]?.start_time).toFixed(3).padStart(6, '0');
  t.ok(captions.includes(`\n00:00:${one} --> `), `${one} in ${captions.slice(0, 400)}`);
  t.strictSame((await readdir(folder)).sort(), ['book.md', 'book.mp3', 'book.vtt']);
});

test('a tag lists more chapters than one table of contents may', { skip: withoutProbe }, async (t) => {
  const chapters = Array.from({ length: 600 }, (_, at) => ({
    title: `Chapter ${at}`,
    start: at / 100,
    end: (at + 1) / 100,
  }));
  const file = join(await temporaryFolder(t), 'many.mp3');
  await writeFile(file, Buffer.concat([chapterTag(chapters), silentMp3(6_000)]));
  const { stdout } = await run('ffprobe', ['-v', 'error', '-show_chapters', '-of', 'json', file]);
  const found: { tags: { title: string } }[] = JSON.parse(stdout).chapters;
  t.strictSame([found.length, found.at(-1)?.tags.title], [600, 'Chapter 599']);
});

test('parts of several sampling rates are not joined, and stay', { skip: withoutProbe }, async (t) => {
  const { env } = await byCard(t);
  const { folder, say } = await bookIn(t);
  const [low, high] = [body(await toneMp3(440, 24_000, 1)), body(await toneMp3(440, 44_100, 1))];
  let asked = 0;
  upstream.mode = (request, response) => (asked++ === 1 ? high : low)(request, response);
  const { code, err } = await callerCommand(env, ...say);
  t.equal(code, 1, err);
  const [, path = ''] =
    /another sampling rate.* Delete (.+), and run the same command: that part is bought /m.exec(err) ?? [];
  await rm(path);
  t.strictSame([(await callerCommand(env, ...say)).code, upstream.requests.length], [0, 4]);
  t.strictSame((await readdir(folder)).sort(), ['book.md', 'book.mp3']);
});

test('of a service that speaks WAV one part is bought, however often it is tried', async (t) => {
  const { env, balance } = await byCard(t);
  upstream.mode = wav();
  const { say } = await bookIn(t);
  const first = await callerCommand(env, ...say);
  t.equal(first.code, 1);
  t.match(first.err, /only MP3 parts can be joined.* You paid 0\.0\d+ USD\.$/m);
  const paid = await balance();
  const again = await callerCommand(env, ...say);
  t.equal(again.code, 1);
  t.match(again.err, /only MP3 parts can be joined.* Nothing was bought\.$/m);
  t.equal(await balance(), paid);
});

test('with --chapters files each chapter is a file with its title, and captions', { skip: withoutProbe }, async (t) => {
  const { env } = await byCard(t);
  await readAloud();
  const { folder, say } = await bookIn(t, CHAPTERED);
  const { code, err, out } = await callerCommand(env, ...say, '--chapters', 'files', '--captions', '--json');
  t.equal(code, 0, err);
  const names = ['01', '02', '03', '04'].map((number) => `book-${number}`);
  t.strictSame(
    JSON.parse(out).files,
    names.map((name) => join(folder, `${name}.mp3`)),
  );
  const all = names.flatMap((name) => [`${name}.mp3`, `${name}.vtt`]);
  t.strictSame((await readdir(folder)).sort(), [...all, 'book.md'].sort());
  const shown = await run('ffprobe', ['-v', 'warning', '-show_format', '-of', 'json', join(folder, 'book-03.mp3')]);
  const { tags, duration } = JSON.parse(shown.stdout).format;
  t.strictSame([tags.title, tags.track], ['Zwölf', '3/4']);
  t.ok(Math.abs(Number(duration) - (SENTENCE.length * 50) / 30) < 3, duration);
  t.match(await readFile(join(folder, 'book-03.vtt'), 'utf8'), /^WEBVTT\n\n00:00:00\.000 --> [\d:.]+\nZwölf\.\n/);
});

test('what is no EPUB, or is encrypted, is refused with why and the usage, with 2', async (t) => {
  const { env } = await byCard(t);
  const { [CONTAINER]: _, ...without } = EPUB;
  const whole = zipOf(EPUB);
  const [isNone, isEncrypted] = [
    'is not a valid EPUB. Check the file, or convert it to text',
    'is encrypted. Use a copy without copy protection',
  ];
  for (const [content, why] of [
    ['no archive', isNone],
    [zipOf(without), isNone],
    [zipOf({ ...EPUB, 'OPS/book.opf': '<package><item id="a" href="%"/><itemref idref="a"/></package>' }), isNone],
    [whole.subarray(0, whole.length / 2), isNone],
    [zipOf(EPUB, true), isEncrypted],
    [zipOf(encryptedBy('http://www.w3.org/2001/04/xmlenc#aes128-cbc')), isEncrypted],
  ] as const) {
    const { say } = await bookIn(t, content, 'book.epub');
    const { code, err } = await callerCommand(env, ...say);
    t.strictSame([code, err], [2, `${say[1]} ${why}. Nothing was bought.\nUsage: speechgate say TEXT|- --out FILE\n`]);
  }
  t.equal(upstream.requests.length, 0);
});

test('Ctrl-C before a part is sent ends with 130', async (t) => {
  const { env } = await byCard(t);
  const { say } = await bookIn(t);
  let stop = () => {};
  const url = await serve(t, async ({ url }, response) => {
    stop();
    const answer = await fetch(`${env.SPEECHGATE_URL}${url}`);
    response.writeHead(answer.status, { 'content-type': 'application/json' }).end(await answer.text());
  });
  const command = startCallerCommand({ ...env, SPEECHGATE_URL: url }, say);
  stop = () => void command.stop('SIGINT');
  const { code, err } = await command.ended;
  t.strictSame([code, upstream.requests.length], [130, 0], err);
  t.match(err, /^Interrupted: Bought: 0 of 3 parts, for 0\.000000 USD in this run\./m);
});

test('a file waits where the service limits requests', async (t) => {
  const limits = { RATE_LIMIT_MAX: '1', RATE_LIMIT_WINDOW_SECONDS: '2', SPEECH_BASE_URL: upstream.url };
  const limited = await startGateway(t, { ...(await listening()), ...limits }, { worker: true });
  const { env } = await byCard(t);
  const { say } = await bookIn(t);
  const own = { SPEECHGATE_URL: limited.config.baseUrl, SPEECHGATE_ACCOUNT: await limited.fund(100) };
  const { code, err } = await callerCommand({ ...env, ...own }, ...say);
  t.equal(code, 0, err);
  t.strictSame(spoken(), PARTS);
});

test('a second command for the same file buys nothing', async (t) => {
  const { env, balance } = await byPrepaid(t);
  const { say } = await bookIn(t);
  const before = await balance();
  const first = new ControlledStream();
  upstream.mode = first.mode;
  const running = startCallerCommand(env, say);
  await first.opened;
  const second = await callerCommand(env, ...say);
  t.strictSame([second.code, upstream.requests.length], [1, 1], second.err);
  t.match(
    second.err,
    /^Another speechgate say is using the folder .+\. Wait until it ends, or stop it, then retry\. Nothing was bought\.$/m,
  );
  upstream.mode = mp3();
  await first.write(silentMp3(1000));
  first.end();
  t.equal((await running.ended).code, 0, running.output());
  t.equal(await balance(), before - PRICE);
});

test('a cap stops a file before its first part, or between two, and nothing is lost', async (t) => {
  const { env, balance } = await byPrepaid(t);
  const { folder, say } = await bookIn(t);
  const over = await callerCommand(env, ...say, '--max', '0.05');
  t.strictSame([over.code, upstream.requests.length], [4, 0], over.err);
  t.match(over.err, /cap of 0\.050000 USD for one call is left.* You were not charged for this speech\.$/m);
  const capped = await callerCommand({ ...env, SPEECHGATE_MAX_PER_DAY: '0.05' }, ...say);
  t.equal(capped.code, 4, capped.err);
  t.match(capped.err, /^Bought: 1 of 3 parts, for 0\.0\d+ USD in this run\. To continue, run /m);
  t.equal((await readdir(join(folder, 'book.mp3.parts'))).filter((name) => name.endsWith('.mp3')).length, 1);
  const before = await balance();
  const rest = await callerCommand(env, ...say, '--max', '0.06');
  t.equal(rest.code, 0, rest.err);
  t.strictSame(spoken(), PARTS);
  t.equal(before - (await balance()), PRICE - 18n * BigInt(PARTS[0]?.length ?? 0));
});

test('a file that cannot be spoken is refused with 2, and nothing is bought', async (t) => {
  const { env } = await byPrepaid(t);
  const folder = await temporaryFolder(t);
  const out = join(folder, 'a.mp3');
  await writeFile(join(folder, 'binary.txt'), Buffer.from([0xff, 0xfe, 0x00]));
  await writeFile(join(folder, 'empty.md'), '```\ncode\n```');
  await writeFile(join(folder, 'a.txt'), 'Hello');
  await writeFile(join(folder, 'word.txt'), `Hello ${'7'.repeat(5_000)}`);
  await mkdir(join(folder, 'folder.txt'));
  for (const [name, args, message] of [
    ['missing.txt', ['--out', out], /missing\.txt does not exist\. Name a text file, or pipe the text in and pass -\./],
    ['binary.txt', ['--out', out], /binary\.txt is not UTF-8 text\. Convert it to UTF-8 first\./],
    ['folder.txt', ['--out', out], /folder\.txt cannot be read \(EISDIR\)\./],
    ['empty.md', ['--out', out], /The text has no words to speak/],
    ['word.txt', ['--out', out], /^The text has no space in the 2000 characters that begin with "7{40}"\./],
    ['a.txt', ['--out', '-'], /--out must name a file for the audio of .*a\.txt\./],
    ['a.txt', ['--play'], /--out must name a file/],
    ['a.txt', ['--out', out, '--chapters', 'marks'], /--chapters must be one of tags, files, not marks\./],
  ] as const) {
    const { code, err } = await callerCommand(env, 'say', join(folder, name), ...args);
    t.equal(code, 2, err);
    t.match(err, message);
    t.match(err, /^[^\n]+ Nothing was bought\.\nUsage: [^\n]+\n$/);
  }
  const noFile = await callerCommand(env, 'say', 'Hello', '--out', out, '--captions');
  t.strictSame([noFile.code, noFile.err.slice(0, 42)], [2, '--chapters and --captions need a text file']);
  t.equal((await callerCommand(env, 'say', 'Read about a.txt', '--out', out)).code, 0);
  t.strictSame(spoken(), ['Read about a.txt']);
});
