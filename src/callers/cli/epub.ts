import { posix } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { Parser } from 'htmlparser2';
import yauzl from 'yauzl';
import { UsageError } from '../../lib/arguments.ts';
import { atMainLevel, type Chapter, chaptersOf, cutAtIds } from '../../lib/clean-text.ts';

/** Of what is read, unpacked. */
const MAX_BYTES = 64 * 1024 * 1024;
const CIPHERS_FILE = 'META-INF/encryption.xml';
/** They only keep fonts from being copied. */
const FONT_CIPHERS = ['http://www.idpf.org/2008/embedding', 'http://ns.adobe.com/pdf/enc#RC'];
/** The table of contents of EPUB 2. */
const NCX_TYPE = 'application/x-dtbncx+xml';

/**
 * The words of a book, in the order of reading. Its chapters are those of its table of contents, else of its headings.
 * @see https://www.w3.org/TR/epub-33/
 * @throws UsageError
 */
export async function readEpub(path: string, content: Buffer, emoji: boolean): Promise<Chapter[]> {
  const refuse = (why: string) => new UsageError(`${path} ${why}. Nothing was bought.`);
  try {
    const { documents, entries } = await readBook(await openArchive(content), refuse);
    return entries.length > 0
      ? chaptersByContents(documents, entries, emoji)
      : chaptersOf(documents.map(({ html }) => html).join('\n'), { format: 'html', emoji });
  } catch (error) {
    throw error instanceof UsageError ? error : refuse('is not a valid EPUB. Check the file, or convert it to text');
  }
}

type Archive = Awaited<ReturnType<typeof openArchive>>;

async function openArchive(content: Buffer) {
  const zip = await yauzl.fromBufferPromise(content, { lazyEntries: true });
  const entries = new Map<string, yauzl.Entry>();
  for await (const entry of zip.eachEntry()) entries.set(entry.fileName, entry);
  return { entries, unpack: async (entry: yauzl.Entry) => buffer(await zip.openReadStreamPromise(entry)) };
}

interface Document {
  readonly name: string;
  readonly html: string;
}

/** Of a table of contents. */
interface Entry {
  readonly title: string;
  readonly level: number;
  /** The name of a document. */
  readonly document: string;
  /** Of an element in it; empty for the whole. */
  readonly id: string;
}

interface Book {
  readonly documents: readonly Document[];
  readonly entries: readonly Entry[];
}

async function readBook({ entries, unpack }: Archive, refuse: (why: string) => UsageError): Promise<Book> {
  let bytes = 0;
  const read = async (name: string): Promise<string> => {
    const entry = entries.get(name);
    if (!entry) throw new Error(`${name} is missing.`);
    if (entry.isEncrypted()) throw refuse('is encrypted. Use a copy without copy protection');
    bytes += entry.uncompressedSize;
    if (bytes > MAX_BYTES) throw refuse(`has more than ${MAX_BYTES} bytes of text. Convert it to several text files`);
    return (await unpack(entry)).toString('utf8');
  };
  const ciphers = entries.has(CIPHERS_FILE) ? elementsOf(await read(CIPHERS_FILE), 'EncryptionMethod') : [];
  if (ciphers.some(({ Algorithm = '' }) => !FONT_CIPHERS.includes(Algorithm))) {
    throw refuse('is encrypted. Use a copy without copy protection');
  }
  const [root] = elementsOf(await read('META-INF/container.xml'), 'rootfile');
  const packagePath = root?.['full-path'] ?? '';
  const description = await read(packagePath);
  const items = elementsOf(description, 'item');
  const documents: Document[] = [];
  for (const { idref, linear } of elementsOf(description, 'itemref')) {
    const item = items.find(({ id }) => id === idref);
    if (item?.href === undefined || linear === 'no' || isNavigation(item)) continue;
    const name = resolveName(packagePath, item.href);
    documents.push({ name, html: await read(name) });
  }
  const contents = items.find(isNavigation) ?? items.find((item) => item['media-type'] === NCX_TYPE);
  if (contents?.href === undefined) return { documents, entries: [] };
  const name = resolveName(packagePath, contents.href);
  return { documents, entries: entriesOf(await read(name), name) };
}

type Attributes = Readonly<Record<string, string>>;

const isNavigation = ({ properties = '' }: Attributes): boolean => properties.split(' ').includes('nav');

/** @param from the file that has the address */
const resolveName = (from: string, address: string): string =>
  posix.join(posix.dirname(from), decodeURIComponent(address));

const localName = (name: string): string => name.split(':').at(-1) as string;

/** The attributes of the elements with this name, whatever its prefix. */
function elementsOf(xml: string, name: string): Attributes[] {
  const found: Attributes[] = [];
  const onopentag = (each: string, attributes: Attributes) => {
    if (localName(each) === name) found.push(attributes);
  };
  new Parser({ onopentag }, { xmlMode: true }).end(xml);
  return found;
}

/** Reads the links of a navigation document, or the labels of an NCX, which are in front of their addresses. */
function entriesOf(xml: string, name: string): Entry[] {
  const entries: Entry[] = [];
  let isContents = false;
  let level = 0;
  let title = '';
  let address: string | undefined;
  const add = () => {
    const [path = '', id = ''] = address?.split('#') ?? [];
    const document = path === '' ? name : resolveName(name, path);
    if (isContents && address !== undefined)
      entries.push({ title: title.replaceAll(/\s+/g, ' ').trim(), level, document, id });
    address = undefined;
  };
  const parser = new Parser(
    {
      onopentag(tag, { 'epub:type': type = 'toc', href, src }) {
        const local = localName(tag);
        if (local === 'navMap' || (local === 'nav' && type.split(' ').includes('toc'))) isContents = true;
        if (local === 'ol' || local === 'navPoint') level += 1;
        if (local === 'a' || local === 'navLabel') title = '';
        if (local === 'a') address = href;
        if (local === 'content') address = src;
      },
      ontext(text) {
        title += text;
      },
      onclosetag(tag) {
        const local = localName(tag);
        if (local === 'a' || local === 'content') add();
        if (local === 'ol' || local === 'navPoint') level -= 1;
        if (local === 'navMap' || local === 'nav') isContents = false;
      },
    },
    { xmlMode: true },
  );
  parser.end(xml);
  return atMainLevel(entries);
}

/** What no entry begins belongs to the chapter before it. */
function chaptersByContents(documents: readonly Document[], entries: readonly Entry[], emoji: boolean): Chapter[] {
  const chapters: Chapter[] = [];
  for (const { name, html } of documents) {
    const own = entries.filter(({ document }) => document === name);
    for (const { id, text } of cutAtIds(html, emoji, new Set(own.map((entry) => entry.id)))) {
      const entry = own.find((each) => each.id === id);
      const last = chapters.at(-1);
      if (entry || !last) chapters.push({ title: entry?.title ?? '', text });
      else chapters[chapters.length - 1] = { ...last, text: `${last.text}\n${text}` };
    }
  }
  return chapters;
}
