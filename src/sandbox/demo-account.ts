/** Buys credit like a person: opens the checkout, presses Pay, follows the redirect. @returns a bearer id */
export async function buyDemoCredit(baseUrl: string, amountCents: number): Promise<string> {
  const opened = await fetch(`${baseUrl}/top-up`, {
    method: 'POST',
    body: new URLSearchParams({ amount: String(amountCents) }),
    redirect: 'manual',
  });
  const checkoutUrl = opened.headers.get('location');
  if (opened.status !== 303 || !checkoutUrl) throw failed(`POST /top-up returned status ${opened.status}`);

  const page = await (await fetch(checkoutUrl)).text();
  const [, name, value] = /<button[^>]*\sname="([^"]+)" value="([^"]+)"/.exec(page) ?? [];
  if (!name || !value) throw failed('the checkout page has no button to pay');
  const paid = await fetch(checkoutUrl, {
    method: 'POST',
    body: new URLSearchParams({ [name]: value }),
    redirect: 'manual',
  });
  const back = paid.headers.get('location');
  if (paid.status !== 303 || !back) throw failed(`the checkout returned status ${paid.status} to the payment`);

  const completed = await fetch(back);
  const account = /<code>([0-9a-f-]{36})<\/code>/.exec(await completed.text())?.[1];
  if (!completed.ok || !account) throw failed(`GET /top-up/complete returned status ${completed.status}`);
  return account;
}

const failed = (cause: string) =>
  new Error(`The demo account has no credit, because ${cause}. Start the sandbox again.`);
