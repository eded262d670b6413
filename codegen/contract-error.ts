/** The contract has mistakes; all of them are listed, one a line. */
export class ContractError extends Error {
  constructor(problems: string[]) {
    super(`The contract has ${problems.length} mistake(s):\n${problems.map((problem) => `  - ${problem}`).join('\n')}`);
  }
}
