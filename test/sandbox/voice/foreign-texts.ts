const CHARACTERS = 4096;

const fill = (pattern: string): string => pattern.repeat(Math.ceil(CHARACTERS / pattern.length)).slice(0, CHARACTERS);

/** Texts that the voice can't read, as it knows English only. */
export const FOREIGN_TEXTS: Readonly<Record<string, string>> = {
  Chinese: fill('春眠不觉晓，处处闻啼鸟。夜来风雨声，花落知多少。'),
  Japanese: fill('こんにちは世界。私は学生です。'),
  Korean: fill('안녕하세요 세계. '),
  Arabic: fill('مرحبا بالعالم '),
  Hindi: fill('नमस्ते दुनिया '),
  Thai: fill('สวัสดีชาวโลก'),
  Russian: fill('Съешь же ещё этих мягких французских булок. '),
  Hebrew: 'בוקר טוב',
  Greek: 'Καλημέρα',
  Georgian: 'დილა',
};
