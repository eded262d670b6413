interface SpokenPart {
  readonly text: string;
  readonly seconds: number;
}

const sentences = new Intl.Segmenter(undefined, { granularity: 'sentence' });
const ESCAPED: Readonly<Record<string, string>> = { '&': '&amp;', '<': '&lt;', '>': '&gt;' };

/** WebVTT with a cue for each sentence, whose share of a part's time is that of its characters. */
export function captionsOf(parts: readonly SpokenPart[]): string {
  const cues: string[] = [];
  let start = 0;
  for (const { text, seconds } of parts) {
    // The segmenter ends a sentence at each line feed.
    for (const { segment, index } of sentences.segment(text.replace(/[\r\n]/g, ' '))) {
      const words = segment.trim().replace(/\s+/g, ' ');
      if (words === '' || seconds === 0) continue;
      const at = (characters: number) => timestamp(start + (seconds * characters) / text.length);
      cues.push(
        `${at(index)} --> ${at(index + segment.length)}\n${words.replace(/[&<>]/g, (sign) => ESCAPED[sign] ?? sign)}\n`,
      );
    }
    start += seconds;
  }
  return ['WEBVTT\n', ...cues].join('\n');
}

/** `hours:minutes:seconds.milliseconds` */
function timestamp(seconds: number): string {
  const ms = Math.round(seconds * 1000);
  const two = (number: number) => String(Math.floor(number)).padStart(2, '0');
  return `${two(ms / 3_600_000)}:${two((ms / 60_000) % 60)}:${two((ms / 1000) % 60)}.${String(ms % 1000).padStart(3, '0')}`;
}
