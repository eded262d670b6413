/** True when an Accept header names HTML, and names it before JSON, as browsers do (R15). */
export function prefersHtml(accept = ''): boolean {
  const html = accept.indexOf('text/html');
  const json = accept.indexOf('application/json');
  return html >= 0 && (json < 0 || html < json);
}
