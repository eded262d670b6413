import { _, type CodeKeywordDefinition, type KeywordCxt } from 'ajv';
import { getProperty } from 'ajv/dist/compile/codegen/index.js';

/**
 * `x-text` marks text that is spoken or stored. Its lengths are counted in UTF-16 code units of the trimmed string (R1),
 * and a lone surrogate or U+0000 anywhere in it is a violation (R2). The error's `params.rule` is `wellFormed`,
 * `minLength` or `maxLength`, and `params.limit` the length.
 */
export const text: CodeKeywordDefinition = {
  keyword: 'x-text',
  type: 'string',
  schemaType: 'object',
  error: {
    message: 'is not acceptable as speech text',
    params: ({ params }) => _`{rule: ${params.rule}, limit: ${params.limit ?? null}}`,
  },
  code(cxt: KeywordCxt) {
    const { gen, data, schema } = cxt;
    const length = gen.const('length', _`${data}.trim().length`);
    cxt.setParams({ rule: _`"wellFormed"` });
    cxt.fail(_`!${data}.isWellFormed() || ${data}.includes("\\0")`);
    cxt.setParams({ rule: _`"minLength"`, limit: _`${schema.minLength}` });
    cxt.fail(_`${length} < ${schema.minLength}`);
    if (schema.maxLength !== undefined) {
      cxt.setParams({ rule: _`"maxLength"`, limit: _`${schema.maxLength}` });
      cxt.fail(_`${length} > ${schema.maxLength}`);
    }
  },
};

/**
 * `coerce: {name: type}` turns the named members of an object, which arrive as strings in a URL, a header or a form,
 * into numbers and booleans before they are checked. Only a plain decimal is a number (R51), so that `1e0`, `0x1`,
 * ` 1`, `+1` and the empty string stay strings and fail the type check.
 */
export const coerce: CodeKeywordDefinition = {
  keyword: 'coerce',
  type: 'object',
  schemaType: 'object',
  before: 'properties',
  code({ gen, data, schema }: KeywordCxt) {
    for (const [name, type] of Object.entries(schema as Record<string, 'number' | 'boolean'>)) {
      const member = _`${data}${getProperty(name)}`;
      if (type === 'boolean') {
        gen.if(_`${member} === "true" || ${member} === "false"`, () => gen.assign(member, _`${member} === "true"`));
      } else {
        gen.if(_`typeof ${member} == "string" && /^-?[0-9]+(\\.[0-9]+)?$/.test(${member})`, () =>
          gen.assign(member, _`Number(${member})`),
        );
      }
    }
  },
};
