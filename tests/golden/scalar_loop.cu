#if __CUDA_ARCH__ >= 900
#define LAUNCH_SHAPE(threads) __block_size__((threads, 1, 1))
#else
#define LAUNCH_SHAPE(threads) __launch_bounds__(threads)
#endif
extern "C" __global__ void LAUNCH_SHAPE(32) scalar_loop(const float* __restrict__ A_ptr, float* __restrict__ B_ptr) {
    const int tx = threadIdx.x;
    int phase_ptr[1];
    float acc_ptr[1];
    phase_ptr[0] = 0;
    acc_ptr[0] = 0.0f;
    while (phase_ptr[0] < 4) {
        acc_ptr[0] = acc_ptr[0] + A_ptr[tx * 4 + phase_ptr[0]];
        phase_ptr[0] = phase_ptr[0] + 1;
    }
    B_ptr[tx] = acc_ptr[0];
}
