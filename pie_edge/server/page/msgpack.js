// MessagePack, as far as the protocol of /ws has it: nil, booleans, numbers, text, bytes, lists, and maps with text as keys.

const utf8 = new TextEncoder();
const text = new TextDecoder("utf-8", { fatal: true });

export function encode(value) {
  const out = [];
  write(out, value);
  return Uint8Array.from(out);
}

export function decode(buffer) {
  const view = new DataView(buffer.buffer ?? buffer, buffer.byteOffset ?? 0, buffer.byteLength);
  const reader = { view, at: 0 };
  const value = read(reader);
  if (reader.at !== view.byteLength) throw new RangeError("bytes after the end of a message");
  return value;
}

function write(out, value) {
  if (value === null || value === undefined) out.push(0xc0);
  else if (typeof value === "boolean") out.push(value ? 0xc3 : 0xc2);
  else if (typeof value === "number") writeNumber(out, value);
  else if (typeof value === "string") {
    const bytes = utf8.encode(value);
    writeHead(out, bytes.length, [[31, 0xa0], [0xff, 0xd9], [0xffff, 0xda], [0xffffffff, 0xdb]]);
    append(out, bytes);
  } else if (value instanceof Uint8Array) {
    writeHead(out, value.length, [[-1, 0], [0xff, 0xc4], [0xffff, 0xc5], [0xffffffff, 0xc6]]);
    append(out, value);
  } else if (Array.isArray(value)) {
    writeHead(out, value.length, [[15, 0x90], [-1, 0], [0xffff, 0xdc], [0xffffffff, 0xdd]]);
    for (const one of value) write(out, one);
  } else {
    const entries = Object.entries(value);
    writeHead(out, entries.length, [[15, 0x80], [-1, 0], [0xffff, 0xde], [0xffffffff, 0xdf]]);
    for (const [key, one] of entries) {
      write(out, key);
      write(out, one);
    }
  }
}

// Of the forms of a head, the first with room: the length in the tag itself, or in one, two or four bytes after it.
function writeHead(out, length, forms) {
  const form = forms.findIndex(([most]) => length <= most);
  if (form === 0) out.push(forms[0][1] | length);
  else {
    out.push(forms[form][1]);
    bigEndian(out, length, 1 << (form - 1));
  }
}

function writeNumber(out, value) {
  if (!Number.isInteger(value) || Math.abs(value) > Number.MAX_SAFE_INTEGER) {
    const bytes = new DataView(new ArrayBuffer(8));
    bytes.setFloat64(0, value);
    out.push(0xcb);
    append(out, new Uint8Array(bytes.buffer));
  } else if (value >= 0 && value < 0x80) out.push(value);
  else if (value < 0 && value >= -32) out.push(256 + value);
  else {
    const bytes = new DataView(new ArrayBuffer(8));
    bytes.setBigInt64(0, BigInt(value));
    out.push(value < 0 ? 0xd3 : 0xcf);
    append(out, new Uint8Array(bytes.buffer));
  }
}

function bigEndian(out, value, bytes) {
  for (let i = bytes - 1; i >= 0; i--) out.push(Math.floor(value / 2 ** (8 * i)) & 0xff);
}

// Not with `push(...bytes)`: a long text is more arguments than a call may have.
function append(out, bytes) {
  for (const byte of bytes) out.push(byte);
}

function read(reader) {
  const tag = take(reader, 1, "getUint8");
  if (tag < 0x80) return tag;
  if (tag < 0x90) return readMap(reader, tag & 15);
  if (tag < 0xa0) return readList(reader, tag & 15);
  if (tag < 0xc0) return text.decode(bytes(reader, tag & 31));
  if (tag >= 0xe0) return tag - 256;
  switch (tag) {
    case 0xc0: return null;
    case 0xc2: return false;
    case 0xc3: return true;
    case 0xc4: return bytes(reader, take(reader, 1, "getUint8")).slice();
    case 0xc5: return bytes(reader, take(reader, 2, "getUint16")).slice();
    case 0xc6: return bytes(reader, take(reader, 4, "getUint32")).slice();
    case 0xca: return take(reader, 4, "getFloat32");
    case 0xcb: return take(reader, 8, "getFloat64");
    case 0xcc: return take(reader, 1, "getUint8");
    case 0xcd: return take(reader, 2, "getUint16");
    case 0xce: return take(reader, 4, "getUint32");
    case 0xcf: return plain(take(reader, 8, "getBigUint64"));
    case 0xd0: return take(reader, 1, "getInt8");
    case 0xd1: return take(reader, 2, "getInt16");
    case 0xd2: return take(reader, 4, "getInt32");
    case 0xd3: return plain(take(reader, 8, "getBigInt64"));
    case 0xd9: return text.decode(bytes(reader, take(reader, 1, "getUint8")));
    case 0xda: return text.decode(bytes(reader, take(reader, 2, "getUint16")));
    case 0xdb: return text.decode(bytes(reader, take(reader, 4, "getUint32")));
    case 0xdc: return readList(reader, take(reader, 2, "getUint16"));
    case 0xdd: return readList(reader, take(reader, 4, "getUint32"));
    case 0xde: return readMap(reader, take(reader, 2, "getUint16"));
    case 0xdf: return readMap(reader, take(reader, 4, "getUint32"));
    default: throw new RangeError(`MessagePack of type 0x${tag.toString(16)}`);
  }
}

function take(reader, size, getter) {
  const value = reader.view[getter](reader.at);
  reader.at += size;
  return value;
}

function bytes(reader, length) {
  const { view, at } = reader;
  if (at + length > view.byteLength) throw new RangeError("a message ends too early");
  reader.at += length;
  return new Uint8Array(view.buffer, view.byteOffset + at, length);
}

function readList(reader, length) {
  const found = [];
  for (let i = 0; i < length; i++) found.push(read(reader));
  return found;
}

function readMap(reader, length) {
  // Without a prototype: a key may be any text.
  const found = Object.create(null);
  for (let i = 0; i < length; i++) {
    const key = read(reader);
    found[key] = read(reader);
  }
  return found;
}

function plain(big) {
  const number = Number(big);
  return Number.isSafeInteger(number) ? number : big;
}
