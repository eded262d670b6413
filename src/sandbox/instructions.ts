export interface Instructions {
  readonly baseUrl: string;
  readonly creditAccount: string;
  readonly dataDir: string;
}

/** What the sandbox prints when it is ready: commands that work as they stand. */
export const instructions = ({ baseUrl, creditAccount, dataDir }: Instructions): string => `
speechgate listens on ${baseUrl}

Say something, paid from the demo account:
  curl -fsS -o hello.mp3 -D - ${baseUrl}/tts -H 'x-credit-account: ${creditAccount}' \\
    -H 'content-type: application/json' -d '{"text":"Hello world, this is speech paid by the character.","voice":"provider-a_nova"}'

The same from the query, at another pace:
  curl -fsS -o slow.mp3 '${baseUrl}/tts?text=Hello+world&voice=provider-a_onyx&speed=0.75' -H 'x-credit-account: ${creditAccount}'

A long text as a job, to be fetched when it is ready (links.status, then links.audio):
  curl -fsS '${baseUrl}/tts?async=true' -H 'x-credit-account: ${creditAccount}' -H 'content-type: text/plain' -d 'Fetch me later.'

What is left:
  curl -fsS ${baseUrl}/credits/${creditAccount}

Buy credit yourself, in a browser, on a checkout that takes no real money:
  ${baseUrl}/top-up?amount=500&account=${creditAccount}

See each payment flow once, direct payment in USDC on a local chain included:
  npm run demo

Models, voices and prices:
  curl -fsS ${baseUrl}/tts/models

Feedback that a wallet signs (POST /feedback) is mailed to ${dataDir}/mail. Steps for programs, under agentGuide:
  curl -fsS ${baseUrl}/docs

Everything is kept in ${dataDir}. Ctrl-C stops the sandbox.
`;
