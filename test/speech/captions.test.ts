import { test } from 'tap';
import { captionsOf, placeWords } from '../../src/speech/captions.ts';

const spoken = (...words: [word: string, start: number, end: number][]) =>
  words.map(([word, start, end]) => ({ word, start, end }));

test('words are found in their text, in order', async (t) => {
  const rows: [text: string, words: [string, number, number][], placed: number[][]][] = [
    [
      'Hello world!',
      [
        ['Hello', 0.175, 0.525],
        ['world', 0.525, 0.9],
        ['!', 0.9, 0.9875],
      ],
      [
        [0, 0.175, 0.525],
        [6, 0.525, 0.9],
      ],
    ],
    [
      'the end of the day',
      [
        ['the', 0, 0.1],
        ['the', 0.1, 0.2],
      ],
      [
        [0, 0, 0.1],
        [11, 0.1, 0.2],
      ],
    ],
    [
      'It costs $5 now',
      [
        ['It', 0, 1],
        ['costs', 1, 2],
        ['five', 2, 3],
        ['dollars', 3, 4],
        ['now', 4, 5],
      ],
      [
        [0, 0, 1],
        [3, 1, 2],
        [12, 4, 5],
      ],
    ],
    [
      `one ${'x'.repeat(60)} two`,
      [
        ['one', 0, 1],
        ['two', 1, 2],
      ],
      [[0, 0, 1]],
    ],
    [
      'one two three',
      [
        ['one', 1, 2],
        ['two', 0.5, 3],
        ['three', Number.NaN, 4],
      ],
      [[0, 1, 2]],
    ],
    ['one', [['', 0, 1]], []],
  ];
  for (const [text, words, placed] of rows) t.strictSame(placeWords(text, spoken(...words)), placed, text);
});

test('a cue has the times of its words, or else its share of the time', async (t) => {
  const text = 'Hello <world>! Welcome\nback.';
  const words = placeWords(
    text,
    spoken(
      ['Hello', 0.175, 0.525],
      ['world', 0.525, 0.9],
      ['!', 0.9, 0.9875],
      ['Welcome', 0.9875, 1.45],
      ['back', 1.45, 2],
    ),
  );
  const timed = captionsOf([
    { text: '***', seconds: 0, words: [] },
    { text: 'First.', seconds: 10, words: [] },
    { text, seconds: 2.5, words },
  ]);
  t.strictSame(timed.split('\n\n'), [
    'WEBVTT',
    '00:00:00.000 --> 00:00:10.000\nFirst.',
    '00:00:10.175 --> 00:00:10.900\nHello &lt;<00:00:10.525>world&gt;!',
    '00:00:10.988 --> 00:00:12.000\nWelcome <00:00:11.450>back.\n',
  ]);
  const [, first, last] = captionsOf([{ text: 'One. Two.', seconds: 9, words: [[0, 0, 1]] }]).split('\n\n');
  t.strictSame([first, last], ['00:00:00.000 --> 00:00:05.000\nOne.', '00:00:05.000 --> 00:00:09.000\nTwo.\n']);
});
