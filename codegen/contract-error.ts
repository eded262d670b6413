/** The contract has mistakes; all of them are listed, one a line. */
export class ContractError extends Error {
  constructor(problems: string[]) {
    super(`Mistakes in the contract: ${problems.length}\n${problems.map((problem) => `  - ${problem}`).join('\n')}`);
  }
}
