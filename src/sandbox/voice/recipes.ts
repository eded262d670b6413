export interface Recipe {
  readonly speaker: 'slt' | 'rms' | 'awb' | 'kal16';
  readonly pitch?: { readonly mean: number; readonly deviation: number };
  readonly shift: number;
  readonly gain: number;
}

const RECIPES = {
  alloy: { speaker: 'slt', shift: 1, gain: 0.86 },
  ash: { speaker: 'rms', shift: 1, gain: 1.48 },
  coral: { speaker: 'slt', pitch: { mean: 158, deviation: 15 }, shift: 0.92, gain: 1.04 },
  echo: { speaker: 'awb', shift: 1, gain: 1.4 },
  fable: { speaker: 'awb', pitch: { mean: 149, deviation: 19 }, shift: 1.06, gain: 1.36 },
  nova: { speaker: 'slt', pitch: { mean: 209, deviation: 14 }, shift: 0.98, gain: 0.68 },
  onyx: { speaker: 'kal16', pitch: { mean: 90, deviation: 10 }, shift: 0.95, gain: 3.3 },
  sage: { speaker: 'rms', shift: 1.11, gain: 1.48 },
  shimmer: { speaker: 'awb', pitch: { mean: 176, deviation: 18 }, shift: 1.08, gain: 1.16 },
} as const satisfies Record<string, Recipe>;

export const VOICES = Object.keys(RECIPES);

/** A name without its own recipe always gets the same other one. */
export function recipeOf(voice: string): Recipe {
  const recipes: Record<string, Recipe> = RECIPES;
  if (Object.hasOwn(recipes, voice)) return recipes[voice] as Recipe;
  let sum = 0;
  for (const character of voice) sum += character.codePointAt(0) as number;
  return recipes[VOICES[sum % VOICES.length] as string] as Recipe;
}
