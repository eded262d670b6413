/** Such as `1 part` and `2 parts`. */
export const counted = (number: number | bigint, what: string): string =>
  `${number} ${what}${Number(number) === 1 ? '' : 's'}`;
