#if __CUDA_ARCH__ >= 900
#define LAUNCH_SHAPE(threads) __block_size__((threads, 1, 1))
#else
#define LAUNCH_SHAPE(threads) __launch_bounds__(threads)
#endif
extern "C" __global__ void LAUNCH_SHAPE(128)
tmem_by_hand(const unsigned int* __restrict__ A_ptr, unsigned int* __restrict__ B_ptr) {
    const int tx = threadIdx.x;
    const int warp = tx >> 5;
    __shared__ __align__(16) unsigned int addr_ptr[1];
    unsigned int r_ptr[8];
    if (warp == 0) {
        asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;" : : "r"((unsigned int)__cvta_generic_to_shared(&addr_ptr[0])), "r"(32u) : "memory");
    }
    asm volatile("tcgen05.fence::before_thread_sync;" : : : "memory");
    __syncthreads();
    asm volatile("tcgen05.fence::after_thread_sync;" : : : "memory");
    const unsigned int base = addr_ptr[0];
    r_ptr[0] = A_ptr[tx * 8];
    r_ptr[1] = A_ptr[tx * 8 + 1];
    r_ptr[2] = A_ptr[tx * 8 + 2];
    r_ptr[3] = A_ptr[tx * 8 + 3];
    r_ptr[4] = A_ptr[tx * 8 + 4];
    r_ptr[5] = A_ptr[tx * 8 + 5];
    r_ptr[6] = A_ptr[tx * 8 + 6];
    r_ptr[7] = A_ptr[tx * 8 + 7];
    asm volatile("tcgen05.st.sync.aligned.32x32b.x8.b32 [%0], {%1, %2, %3, %4, %5, %6, %7, %8};" : : "r"(base + ((unsigned int)warp << 21) + 16u), "r"(r_ptr[0]), "r"(r_ptr[1]), "r"(r_ptr[2]), "r"(r_ptr[3]), "r"(r_ptr[4]), "r"(r_ptr[5]), "r"(r_ptr[6]), "r"(r_ptr[7]) : "memory");
    asm volatile("tcgen05.wait::st.sync.aligned;" : : : "memory");
    asm volatile("tcgen05.ld.sync.aligned.32x32b.x8.b32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8];" : "=r"(r_ptr[0]), "=r"(r_ptr[1]), "=r"(r_ptr[2]), "=r"(r_ptr[3]), "=r"(r_ptr[4]), "=r"(r_ptr[5]), "=r"(r_ptr[6]), "=r"(r_ptr[7]) : "r"(base + ((unsigned int)warp << 21) + 16u) : "memory");
    asm volatile("tcgen05.wait::ld.sync.aligned;" : : : "memory");
    B_ptr[tx * 8] = r_ptr[7];
    B_ptr[tx * 8 + 1] = r_ptr[6];
    B_ptr[tx * 8 + 2] = r_ptr[5];
    B_ptr[tx * 8 + 3] = r_ptr[4];
    B_ptr[tx * 8 + 4] = r_ptr[3];
    B_ptr[tx * 8 + 5] = r_ptr[2];
    B_ptr[tx * 8 + 6] = r_ptr[1];
    B_ptr[tx * 8 + 7] = r_ptr[0];
    asm volatile("tcgen05.fence::before_thread_sync;" : : : "memory");
    __syncthreads();
    asm volatile("tcgen05.fence::after_thread_sync;" : : : "memory");
    if (warp == 0) {
        asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;" : : : "memory");
        asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" : : "r"(base), "r"(32u) : "memory");
    }
}
