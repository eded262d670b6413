import { sql } from 'kysely';
import { type Books, openBooks } from '../database/books.ts';
import { ACCOUNTS, accountId, wallets } from '../world.ts';
import type { FillSizes } from './fill/sizes.ts';
import { fillLedger } from './fill-ledger.ts';

/** Between two lines that tell how far it is. */
const TELL_EVERY_MS = 5000;

/** The benchmark's books, whose payers are spread over a filled ledger, and how long the filling took. */
export async function openBigBooks(
  folder: string,
  sizes: FillSizes,
  onProgress: (message: string) => void,
): Promise<{ books: Books; fillSeconds: number }> {
  const known = {
    cards: Array.from({ length: ACCOUNTS }, (_, index) => accountId(index)),
    wallets: wallets().map(({ address }) => address),
  };
  let fillSeconds = 0;
  const books = await openBooks(folder, async (db) => {
    // For a ledger of gigabytes: else most of the log repeats whole pages after each of its checkpoints.
    await sql`alter system set max_wal_size = '8GB'`.execute(db);
    await sql`select pg_reload_conf()`.execute(db);
    const begunAt = performance.now();
    let toldAt = begunAt;
    await fillLedger(db, sizes, {
      known,
      progress: (what, done, of) => {
        if (performance.now() < toldAt + TELL_EVERY_MS) return;
        toldAt = performance.now();
        onProgress(`filling: ${done.toLocaleString('en')} of ${of.toLocaleString('en')} ${what}`);
      },
    });
    fillSeconds = (performance.now() - begunAt) / 1000;
  });
  return { books, fillSeconds };
}
