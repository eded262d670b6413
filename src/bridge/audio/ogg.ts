const HEADER_BYTES = 27;
const CHECKSUM_AT = 22;
const LACING = 255;

/** As a page's header marks them. */
export const FIRST_PAGE = 0x02;
export const LAST_PAGE = 0x04;

const CRC = Uint32Array.from({ length: 256 }, (_, byte) => {
  let rest = byte << 24;
  for (let bit = 0; bit < 8; bit++) rest = rest < 0 ? (rest << 1) ^ 0x04c11db7 : rest << 1;
  return rest >>> 0;
});

/** Writes the pages of one logical Ogg stream. Every packet lies within one page. @see RFC 3533 */
export class OggPages {
  #sequence = 0;
  readonly #serial: number;

  constructor(serial: number) {
    this.#serial = serial;
  }

  /**
   * A page of at most 255 segments: a packet takes one for each 255 bytes, and one more.
   * @param granule how many samples have been played once it ends
   */
  page(packets: readonly Uint8Array[], granule: number, flags = 0): Uint8Array {
    const lacing = packets.flatMap(({ length }) => [
      ...new Array<number>(Math.floor(length / LACING)).fill(LACING),
      length % LACING,
    ]);
    const header = Buffer.alloc(HEADER_BYTES + lacing.length);
    header.write('OggS', 0, 'latin1');
    header.writeUInt8(flags, 5);
    header.writeBigInt64LE(BigInt(granule), 6);
    header.writeUInt32LE(this.#serial, 14);
    header.writeUInt32LE(this.#sequence++, 18);
    header.writeUInt8(lacing.length, 26);
    header.set(lacing, HEADER_BYTES);
    const page = Buffer.concat([header, ...packets]);
    page.writeUInt32LE(checksum(page), CHECKSUM_AT);
    return page;
  }
}

function checksum(page: Uint8Array): number {
  let sum = 0;
  for (const byte of page) sum = ((sum << 8) ^ (CRC[(sum >>> 24) ^ byte] as number)) >>> 0;
  return sum;
}
