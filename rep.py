import json,sys,collections,time
since=float(sys.argv[1]) if len(sys.argv)>1 else 0
L=[json.loads(l) for l in open('/tmp/dev/p4/R2/load.jsonl')]; L=[e for e in L if e['t']>=since]
c=collections.Counter(); 
for e in L: c[(e['u'],e['m'],e.get('s','EXC'))]+=1
print(len(L),dict(c))
bad=[e for e in L if e.get('s')!=200]
for e in bad[:12]: print('  BAD',time.strftime('%T',time.gmtime(e['t'])),e)
emp=[e for e in L if e.get('s')==200 and e['n']<5]; print('fewer than 5:',len(emp)); [print('  ',time.strftime('%T',time.gmtime(e['t'])),e['u'],e['m'],e['n']) for e in emp[:8]]
ns=[e for e in L if e.get('s')==200 and not e['same']]; print('same text not found:',len(ns),collections.Counter((e['u'],e['m']) for e in ns)); [print('  ',time.strftime('%T',time.gmtime(e['t'])),e['u'],e['m'],e['sim'],e['fn']) for e in ns[:6]]
ms=sorted(e['ms'] for e in L if e.get('s')==200); print('ms p50 p95 max',ms[len(ms)//2],ms[int(len(ms)*.95)],ms[-1]) if ms else 0
low=[e for e in L if e.get('s')==200 and e['m']=='vector' and (e['sim'] or 0)<.97]; print('vector top sim <.97:',len(low)); [print('  ',time.strftime('%T',time.gmtime(e['t'])),e['u'],e['sim'],e['same']) for e in low[:6]]
