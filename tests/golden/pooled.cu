#if __CUDA_ARCH__ >= 900
#define LAUNCH_SHAPE(threads) __block_size__((threads, 1, 1))
#else
#define LAUNCH_SHAPE(threads) __launch_bounds__(threads)
#endif
extern "C" __global__ void LAUNCH_SHAPE(64)
pooled(const unsigned short* __restrict__ A_ptr, unsigned short* __restrict__ B_ptr) {
    const int tx = threadIdx.x;
    extern __shared__ __align__(1024) unsigned char smem_ptr[];
    const unsigned int* const header_ptr = (const unsigned int*)smem_ptr;
    unsigned short* const tile_ptr = (unsigned short*)(smem_ptr + 1024);
    *(uint4*)(tile_ptr + tx * 64 + (tx & 7) * 8) = *(uint4*)(A_ptr + tx * 64);
    *(uint4*)(tile_ptr + tx * 64 + (1 ^ (tx & 7)) * 8) = *(uint4*)(A_ptr + tx * 64 + 8);
    *(uint4*)(tile_ptr + tx * 64 + (2 ^ (tx & 7)) * 8) = *(uint4*)(A_ptr + tx * 64 + 16);
    *(uint4*)(tile_ptr + tx * 64 + (3 ^ (tx & 7)) * 8) = *(uint4*)(A_ptr + tx * 64 + 24);
    *(uint4*)(tile_ptr + tx * 64 + (4 ^ (tx & 7)) * 8) = *(uint4*)(A_ptr + tx * 64 + 32);
    *(uint4*)(tile_ptr + tx * 64 + (5 ^ (tx & 7)) * 8) = *(uint4*)(A_ptr + tx * 64 + 40);
    *(uint4*)(tile_ptr + tx * 64 + (6 ^ (tx & 7)) * 8) = *(uint4*)(A_ptr + tx * 64 + 48);
    *(uint4*)(tile_ptr + tx * 64 + (7 ^ (tx & 7)) * 8) = *(uint4*)(A_ptr + tx * 64 + 56);
    __syncthreads();
    #pragma unroll
    for (int r = 0; r < 64; ++r) {
        B_ptr[tx * 64 + r] = tile_ptr[r * 64 + ((tx >> 3) ^ (r & 7)) * 8 + (tx & 7)];
    }
}
