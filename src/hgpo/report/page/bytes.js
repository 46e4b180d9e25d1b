/* The packed data: the inverse of hgpo.report.document.pack_payload. */

async function unpack(base64) {
  const packed = Uint8Array.from(atob(base64.trim()), (character) => character.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const raw = new Uint8Array(await new Response(stream).arrayBuffer());
  const length = new DataView(raw.buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(raw.subarray(4, 4 + length)));
  return { header, stored: raw.subarray(4 + length) };
}

const ARRAYS = { u1: Uint8Array, u2: Uint16Array, i4: Int32Array, f4: Float32Array };

/* A column's bytes lie in planes: the first byte of every value, then the second of every value, and so on. */
function readColumn(column, stored) {
  const Values = ARRAYS[column.type];
  const size = Values.BYTES_PER_ELEMENT;
  const bytes = new Uint8Array(column.length * size);
  for (let plane = 0; plane < size; plane++) {
    const from = column.at + plane * column.length;
    for (let row = 0; row < column.length; row++) bytes[row * size + plane] = stored[from + row];
  }
  return new Values(bytes.buffer);
}
