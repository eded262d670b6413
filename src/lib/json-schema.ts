import { Ajv, type Options, type ValidateFunction } from 'ajv';

/** Compiles a constant schema. The schema is not checked: that would compile the meta-schema at each start. */
export const compileSchema = <T = unknown>(schema: object, options: Options = {}): ValidateFunction<T> =>
  new Ajv({ validateSchema: false, ...options }).compile<T>(schema);
