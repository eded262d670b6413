import { posix } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { Parser } from 'htmlparser2';
import yauzl from 'yauzl';
import { cleanText } from '../../lib/clean-text.ts';
import { UsageError } from '../../lib/usage-error.ts';

/** Of what is read, unpacked. */
const MAX_BYTES = 64 * 1024 * 1024;
const CIPHERS_FILE = 'META-INF/encryption.xml';
/** They only keep fonts from being copied. */
const FONT_CIPHERS = ['http://www.idpf.org/2008/embedding', 'http://ns.adobe.com/pdf/enc#RC'];

/** The words of a book, in the order of reading. @see https://www.w3.org/TR/epub-33/ @throws UsageError */
export async function readEpub(path: string, content: Buffer): Promise<string> {
  const refuse = (why: string) => new UsageError(`${path} ${why}. Nothing was bought.`);
  try {
    return await readBook(await openArchive(content), refuse);
  } catch (error) {
    throw error instanceof UsageError ? error : refuse('is not an EPUB, or is damaged');
  }
}

type Archive = Awaited<ReturnType<typeof openArchive>>;

async function openArchive(content: Buffer) {
  const zip = await yauzl.fromBufferPromise(content, { lazyEntries: true });
  const entries = new Map<string, yauzl.Entry>();
  for await (const entry of zip.eachEntry()) entries.set(entry.fileName, entry);
  return { entries, unpack: async (entry: yauzl.Entry) => buffer(await zip.openReadStreamPromise(entry)) };
}

async function readBook({ entries, unpack }: Archive, refuse: (why: string) => UsageError): Promise<string> {
  let bytes = 0;
  const read = async (name: string): Promise<string> => {
    const entry = entries.get(name);
    if (!entry) throw new Error(`${name} is missing.`);
    if (entry.isEncrypted()) throw refuse('is encrypted. Use a copy without protection');
    bytes += entry.uncompressedSize;
    if (bytes > MAX_BYTES) throw refuse(`has more than ${MAX_BYTES} bytes of text. Convert it to several text files`);
    return (await unpack(entry)).toString('utf8');
  };
  const ciphers = entries.has(CIPHERS_FILE) ? elementsOf(await read(CIPHERS_FILE), 'EncryptionMethod') : [];
  if (ciphers.some(({ Algorithm = '' }) => !FONT_CIPHERS.includes(Algorithm))) {
    throw refuse('is encrypted. Use a copy without protection');
  }
  const [root] = elementsOf(await read('META-INF/container.xml'), 'rootfile');
  const packagePath = root?.['full-path'] ?? '';
  const description = await read(packagePath);
  const items = new Map(elementsOf(description, 'item').map((item) => [item.id, item]));
  const chapters: string[] = [];
  for (const { idref, linear } of elementsOf(description, 'itemref')) {
    const { href, properties = '' } = items.get(idref) ?? {};
    if (href === undefined || linear === 'no' || properties.split(' ').includes('nav')) continue;
    const chapter = await read(posix.join(posix.dirname(packagePath), decodeURIComponent(href)));
    chapters.push(cleanText(chapter, { format: 'html', emoji: true }));
  }
  return chapters.join('\n');
}

/** The attributes of the elements with this name, whatever its prefix. */
function elementsOf(xml: string, name: string): Readonly<Record<string, string>>[] {
  const found: Readonly<Record<string, string>>[] = [];
  const onopentag = (each: string, attributes: Record<string, string>) => {
    if (each.split(':').at(-1) === name) found.push(attributes);
  };
  new Parser({ onopentag }, { xmlMode: true }).end(xml);
  return found;
}
