import Stripe from 'stripe';

type HttpClient = Stripe.HttpClient;

/**
 * An HTTP client for Stripe's SDK that lets only usable answers through to it: a JSON object that is a success or has an
 * error member. By itself the SDK takes any object without an error member for a success, whatever its status, and an
 * answer that is JSON but no object ends the process with an exception that nobody can catch.
 */
export function createStripeHttpClient(): HttpClient {
  const client = Stripe.createNodeHttpClient();
  return {
    getClientName: () => client.getClientName(),
    async makeRequest(...request) {
      const response = await client.makeRequest(...request);
      const read = response.toJSON.bind(response);
      response.toJSON = async () => {
        const body: unknown = await read();
        if (isUsable(response.getStatusCode(), body)) return body;
        throw new TypeError('the answer is no JSON object of the API');
      };
      return response;
    },
  };
}

function isUsable(status: number, body: unknown): boolean {
  if (typeof body !== 'object' || body === null || Array.isArray(body)) return false;
  if (!('error' in body) || !body.error) return status >= 200 && status < 300;
  return typeof body.error === 'object' || typeof body.error === 'string';
}
