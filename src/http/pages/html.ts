const ESCAPES: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
};

export class Html {
  readonly #markup: string;

  constructor(markup: string) {
    this.#markup = markup;
  }

  toString(): string {
    return this.#markup;
  }
}

/** Marks text as safe markup. Never use it for what a caller sent. */
export const raw = (markup: string): Html => new Html(markup);

/** Builds a fragment. Values are escaped for text and quoted attributes; nested fragments and lists of them are not. */
export function html(strings: TemplateStringsArray, ...values: (string | number | Html | readonly Html[])[]): Html {
  return new Html(String.raw({ raw: strings }, ...values.map(markupOf)));
}

function markupOf(value: string | number | Html | readonly Html[]): string {
  if (value instanceof Html) return String(value);
  return Array.isArray(value) ? value.map(markupOf).join('') : escapeText(value as string | number);
}

const escapeText = (value: string | number): string =>
  String(value).replaceAll(/[&<>"']/g, (character) => ESCAPES[character] ?? character);
