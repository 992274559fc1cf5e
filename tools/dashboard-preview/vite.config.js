import { defineConfig } from 'vite';

export default defineConfig({
  esbuild: { jsx: 'automatic' },
  define: { 'process.env.NODE_ENV': '"production"', 'process.env': '{}', global: 'globalThis' },
  build: { chunkSizeWarningLimit: 10000, sourcemap: false },
  logLevel: 'warn',
});
