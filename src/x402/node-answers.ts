import { Ajv, type ValidateFunction } from 'ajv';

const hex = (digits: string) => ({ type: 'string', pattern: `^0x[0-9a-fA-F]${digits}$` });
const object = (properties: Record<string, object>) => ({
  type: 'object',
  required: Object.keys(properties),
  properties,
});

const list = (items: object) => ({ type: 'array', items });

/** Of blocks and seconds: none comes near what a bigint of the database holds. */
const NUMBER = hex('{1,13}');
/** Of the logs of a block: an integer of the database. */
const INDEX = hex('{1,7}');
const HASH = hex('{64}');
const LOG = object({
  address: hex('{40}'),
  topics: list(HASH),
  data: hex('*'),
  logIndex: INDEX,
  blockNumber: NUMBER,
  blockHash: HASH,
  transactionHash: HASH,
});
const RECEIPT = object({
  status: hex('{1,64}'),
  blockNumber: NUMBER,
  blockHash: HASH,
  transactionHash: HASH,
  logs: list(LOG),
});
const BLOCK = object({ number: NUMBER, hash: HASH, timestamp: NUMBER });

const ajv = new Ajv();
const orNull = (schema: object) => ({ anyOf: [{ type: 'null' }, schema] });

/** What a node answers to the calls that are made, as the Ethereum JSON-RPC specification has it. */
const answers: Readonly<Record<string, ValidateFunction>> = {
  eth_chainId: ajv.compile(NUMBER),
  eth_blockNumber: ajv.compile(NUMBER),
  eth_getCode: ajv.compile(hex('*')),
  eth_getLogs: ajv.compile(list(LOG)),
  /** Null while the transaction is in no block. */
  eth_getTransactionReceipt: ajv.compile(orNull(RECEIPT)),
  /** Null for a block that the node does not know. */
  eth_getBlockByNumber: ajv.compile(orNull(BLOCK)),
  /** One word. An address without the token's code answers with nothing. */
  eth_call: ajv.compile(HASH),
};

/** Whether this can be the answer to a call of the method. */
export const isAnswer = (method: string, answer: unknown): boolean => answers[method]?.(answer) ?? false;
