// Given to a program by NODE_OPTIONS: writes the address of each module that is loaded to LOADED_MODULES, a line each.
import { appendFileSync } from 'node:fs';
import module, { register } from 'node:module';

const hooks = `
  import { appendFileSync } from 'node:fs';
  let file;
  export const initialize = (data) => { file = data; };
  export async function load(url, context, next) {
    appendFileSync(file, url + '\\n');
    return next(url, context);
  }`;
const file = process.env.LOADED_MODULES;
register(`data:text/javascript,${encodeURIComponent(hooks)}`, { data: file });
const load = module._load;
module._load = function logged(request, parent, isMain) {
  const path = module.isBuiltin(request) ? request : module._resolveFilename(request, parent, isMain);
  appendFileSync(file, `${path}\n`);
  return load.call(this, request, parent, isMain);
};
